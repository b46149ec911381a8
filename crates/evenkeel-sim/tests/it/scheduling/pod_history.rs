//! Invariants that hold at every moment: no node exceeds its capacity, no pod changes its node, no node refuses a pod, and
//! every victim has a lower priority than its preemptor.

use evenkeel_api::views::Pod;
use evenkeel_component_helpers::resource;
use evenkeel_runtime::cache::CacheEvent;
use evenkeel_sim::{Outcome, World, Write, part};
use http::Method;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::CPUS;
use crate::fixtures::PODS;

/// Records every pod that ever existed.
#[derive(Clone, Default)]
pub(super) struct PodHistory(Arc<Mutex<PodRecords>>);

#[derive(Default)]
struct PodRecords {
    /// Node and CPUs of the pods that use resources, by uid.
    placed: BTreeMap<String, (String, i64)>,
    /// Priority of each pod by its name, kept after its deletion.
    priorities: BTreeMap<String, i32>,
    /// Names of the pods that the scheduler evicted, according to the part of the log that was read.
    victims: BTreeSet<String>,
    wrong: Vec<String>,
}

impl PodHistory {
    pub(super) async fn open(world: &World) -> Self {
        let pod_history = Self::default();
        let this = pod_history.clone();
        let seen = move |event: &CacheEvent<Pod>| {
            let gone = matches!(event, CacheEvent::Deleted(_));
            this.lock().seen(event.object(), gone);
        };
        world.on_pods(seen).await;
        pod_history
    }

    fn lock(&self) -> MutexGuard<'_, PodRecords> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks all events up to now. Returns the names of the pods that the scheduler evicted for pods with at most the priority
    /// `highest`.
    #[track_caller]
    pub(super) fn check(&self, world: &World, highest: i32) -> BTreeSet<String> {
        let mut books = self.lock();
        books.read(&world.log().since(0), highest);
        assert!(books.wrong.is_empty(), "{:#?}\n{}", books.wrong, world.log().tail(40));
        books.victims.clone()
    }
}

impl PodRecords {
    fn seen(&mut self, pod: &Pod, gone: bool) {
        let (uid, name) = (pod.meta.uid.to_string(), pod.meta.name.to_string());
        self.priorities.insert(name.clone(), pod.spec.priority.unwrap_or(0));
        if pod.status.reason.starts_with("OutOf") {
            self.wrong.push(format!("{name} was refused by {}", pod.spec.node_name));
        }
        if gone || matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            self.placed.remove(&uid);
            return;
        }
        if pod.spec.node_name.is_empty() {
            return;
        }
        let requests = resource::pod_requests(pod, &[]);
        let cpu = requests.iter().find(|(resource, _)| *resource == "cpu");
        let cpu = cpu.map_or(0, |(_, amount)| amount.value());
        let node = pod.spec.node_name.to_string();
        if let Some((before, _)) = self.placed.insert(uid, (node.clone(), cpu))
            && before != node
        {
            self.wrong.push(format!("{name} was on {before} and is on {node}"));
        }
        let on_it = self.placed.values().filter(|(other, _)| *other == node);
        let load: i64 = on_it.map(|(_, cpu)| cpu).sum();
        if load > CPUS {
            self.wrong.push(format!("{node} holds {load} of {CPUS} with {name}"));
        }
    }

    fn read(&mut self, log: &[Write], highest: i32) {
        let mut bound = BTreeSet::new();
        for write in log.iter().filter(|write| write.part == part::SCHEDULER && done(write)) {
            if write.target.ends_with("/binding") {
                let body: Value = serde_json::from_slice(&write.body).unwrap_or_default();
                let uid = body["metadata"]["uid"].to_string();
                if !bound.insert(uid) {
                    self.wrong.push(format!("bound twice: {write}"));
                }
            } else if write.method == Method::DELETE {
                let path = write.target.split('?').next().unwrap_or_default();
                let name = path.strip_prefix(PODS).unwrap_or(path).trim_start_matches('/');
                if self.priorities.get(name).is_none_or(|priority| *priority >= highest) {
                    self.wrong.push(format!("no victim: {write}"));
                }
                self.victims.insert(name.to_owned());
            }
        }
    }
}

fn done(write: &Write) -> bool {
    matches!(write.outcome, Outcome::Answered(200..300) | Outcome::Unheard(200..300))
}
