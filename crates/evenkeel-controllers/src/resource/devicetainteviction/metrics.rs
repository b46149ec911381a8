//! Metrics of evictions, and the number of evicted pods of each rule.

use super::{
    Pods,
    plan::{self, Ended, Memory, Observed},
    rule::RULE_STATUS_PERIOD,
    taints::Eviction,
};
use crate::resource::rules::Rule;
use evenkeel_api::View as _;
use evenkeel_runtime::{
    cache::Cache,
    metrics,
    plan::{Key, Pass, PassHandler, Planned},
    queue::Queue,
};
use prometheus::{Histogram, IntCounter, Registry};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Upstream's histogram buckets of the deletion latency, in seconds.
const LATENCY_BUCKETS: [f64; 12] =
    [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];

/// Number of pods that were evicted because of each rule since the controller started, by the rule's uid. Clones share
/// the numbers. Upstream: `taintRuleStats`.
#[derive(Clone, Default)]
pub(super) struct EvictedPods(Arc<Mutex<HashMap<Arc<str>, u64>>>);

impl EvictedPods {
    /// Returns the number for a rule.
    pub(super) fn of(&self, uid: &str) -> u64 {
        self.lock().get(uid).copied().unwrap_or_default()
    }

    /// Forgets a deleted rule.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn add(&self, uid: &str) {
        *self.lock().entry(uid.into()).or_default() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts evictions, and enqueues the rules that cause them.
pub(super) struct Metrics {
    deletions: IntCounter,
    latency: Histogram,
    rules: Option<RuleUpdates>,
}

/// Rules whose status follows evictions. Absent without the gate `DRADeviceTaintRules`.
pub(super) struct RuleUpdates {
    pub(super) rules: Cache<Rule>,
    pub(super) queue: Queue<Key>,
    pub(super) evicted: EvictedPods,
}

impl RuleUpdates {
    /// Enqueues the rules of an eviction after the period, because more pods may follow. If `is_over`, also counts the
    /// pod.
    fn add(&self, eviction: &Eviction, is_over: bool) {
        for (name, uid) in eviction.rules() {
            let Some(rule) = self.rules.get("", name) else { continue };
            if rule.meta().uid != *uid {
                continue;
            }
            if is_over {
                self.evicted.add(uid);
            }
            self.queue.add_after(Key::new("", name), RULE_STATUS_PERIOD);
        }
    }
}

impl Metrics {
    pub(super) fn new(registry: &Registry, rules: Option<RuleUpdates>) -> Self {
        let help = "Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via DeviceTaintEvictionController.";
        let name = "device_taint_eviction_controller_pod_deletion_duration_seconds";
        let latency = metrics::histogram(registry, name, help, &LATENCY_BUCKETS);
        let deletions = IntCounter::new(
            "device_taint_eviction_controller_pod_deletions_total",
            "Total number of Pods deleted by DeviceTaintEvictionController since its start.",
        )
        .expect("the name is a valid literal");
        Self { deletions: metrics::register(registry, deletions), latency, rules }
    }
}

impl PassHandler<Pods> for Metrics {
    fn on_planned(&self, observed: &Observed, planned: Planned<'_, Memory>) {
        let uid = &observed.pod.pod.meta.uid;
        if let (Some(rules), Some(eviction)) = (&self.rules, planned.memory.scheduled(uid)) {
            rules.add(eviction, false);
        }
    }

    fn on_passed(&self, observed: &Observed, pass: &Pass<'_, Memory>) {
        let ended = plan::ended(observed, pass.memory, pass.outcomes, pass.planned_at);
        let eviction = pass.memory.scheduled(&observed.pod.pod.meta.uid);
        let (Some(Ended::Deleted), Some(eviction)) = (ended, eviction) else { return };
        self.deletions.inc();
        let delay = pass.planned_at.duration_since(eviction.due).as_secs_f64();
        self.latency.observe(delay + pass.took.as_secs_f64());
        if let Some(rules) = &self.rules {
            rules.add(eviction, true);
        }
    }
}
