//! Device taint eviction controller: deletes pods that use tainted devices, and reports the progress in the status of
//! DeviceTaintRules (KEP-5055). Upstream: `pkg/controller/devicetainteviction`.

#[cfg(test)]
mod fixtures;
mod metrics;
mod plan;
mod rule;
mod taints;

use crate::{
    needs::Resource,
    options::Workers,
    resource::{
        podclaims::{Claim, ClaimName, allocated_devices, claim_name, index_key, pods_by_claim},
        rules::{RULES, Rule},
    },
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{View as _, time::Timestamp, views::Pod};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    controller::{Builder, Controller, Enqueue},
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use metrics::{EvictedPods, Metrics, RuleUpdates};
use plan::Memory;
use std::{collections::BTreeMap, sync::Arc};
use taints::{NO_EXECUTE, ObservedClaim, ObservedPod, Slice};

/// Number of pods, and number of rules, that are reconciled concurrently. Flag
/// `--concurrent-device-taint-eviction-syncs`. Default: 8.
pub type Options = Workers<8>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-device-taint-eviction-syncs";

/// The device taint eviction controller. Upstream: `newDeviceTaintEvictionControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "device-taint-eviction-controller",
    queue: "device-taint-eviction-controller",
    client: "device-taint-eviction-controller",
    gates: &["DynamicResourceAllocation", "DRADeviceTaints"],
    resources: &[Resource { group: "resource.k8s.io", version: "v1", plural: "resourceslices" }],
    start,
    ..Descriptor::DEFAULTS
};

/// Name of the controller of rules. The keys of the main queue are pods.
const RULE_CONTROLLER: &str = "device-taint-rule-status";

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let devices = Devices::new(context);
    let has_rules = context.gates.enabled("DRADeviceTaintRules") && context.resources.has(&RULES);
    let rules = has_rules.then(|| context.env.caches.of::<Rule>());
    let rule_status = rules.map(|rules| {
        let evicted = EvictedPods::default();
        let status =
            RuleStatus { rules: rules.clone(), devices: devices.clone(), evicted: evicted.clone() };
        let controller = rule_controller(context, status);
        let updates = RuleUpdates { rules, queue: controller.queue(), evicted };
        (controller, updates)
    });
    let (rule_controller, updates) = rule_status.unzip();
    context.run(pod_controller(context, devices, updates));
    rule_controller.into_iter().for_each(|controller| context.run(controller));
    Ok(Started::Yes)
}

/// Builds the controller of evictions. Its keys are pods. Events of their claims, of the slices of allocated devices and
/// of rules also enqueue pods.
fn pod_controller(
    context: &ControllerContext,
    devices: Devices,
    updates: Option<RuleUpdates>,
) -> Controller {
    let (for_claims, for_slices, for_rules) = (devices.clone(), devices.clone(), devices.clone());
    let rules = updates.as_ref().map(|updates| updates.rules.clone());
    let builder = context
        .builder_watching(&DESCRIPTOR, &devices.pods, enqueue_pod)
        .workers(context.options.devicetainteviction.concurrent_syncs)
        .watches(&devices.claims, move |event, enqueue| {
            for_claims.enqueue_pods_of(event.object(), enqueue);
        })
        .watches(&devices.slices, move |event, enqueue| for_slices.on_slice(event, enqueue));
    let builder = match &rules {
        Some(rules) => builder.watches(rules, move |event, enqueue| {
            for_rules.on_rule(event, enqueue);
        }),
        None => builder,
    };
    let metrics = Metrics::new(&context.registry, updates);
    builder.planned_with(Pods { devices, rules }, metrics)
}

/// Builds the controller of rules' status. New and changed rules are enqueued immediately, and evictions enqueue their rules
/// later.
fn rule_controller(context: &ControllerContext, planner: RuleStatus) -> Controller {
    let evicted = planner.evicted.clone();
    let Devices { pods, claims, slices, .. } = &planner.devices;
    let builder: Builder = context
        .builder_watching(&DESCRIPTOR, &planner.rules, move |event, enqueue| match event {
            CacheEvent::Deleted(rule) => evicted.forget(&rule.meta().uid),
            CacheEvent::Updated { old, new }
                if old.meta().uid == new.meta().uid && old.spec == new.spec => {}
            CacheEvent::Added { .. } | CacheEvent::Updated { .. } => {
                enqueue.add(Key::of(event.object().meta()));
            }
        })
        .named(RULE_CONTROLLER)
        .workers(context.options.devicetainteviction.concurrent_syncs)
        .reads(pods)
        .reads(claims)
        .reads(slices);
    builder.planned(planner)
}

/// Enqueues a pod with claims, except after an update that changes neither its node nor its claims. Upstream:
/// `handlePodChange`.
fn enqueue_pod(event: &CacheEvent<Pod>, enqueue: &Enqueue) {
    let pod = event.object();
    if let CacheEvent::Updated { old, new } = event
        && old.meta.uid == new.meta.uid
        && old.spec.node_name == new.spec.node_name
        && old.status.resource_claim_statuses == new.status.resource_claim_statuses
    {
        return;
    }
    if !pod.spec.resource_claims.is_empty() {
        enqueue.add(Key::of(&pod.meta));
    }
}

/// Caches of pods, their claims, and published devices.
#[derive(Clone)]
struct Devices {
    pods: Cache<Pod>,
    pods_by_claim: Index<Pod>,
    claims: Cache<Claim>,
    /// Claims by the pools of their allocated devices.
    claims_by_pool: Index<Claim>,
    slices: Cache<Slice>,
    slices_by_pool: Index<Slice>,
    /// Gate `DRAWorkloadResourceClaims`.
    accepts_pod_groups: bool,
}

impl Devices {
    fn new(context: &ControllerContext) -> Self {
        let caches = &context.env.caches;
        let (pods, claims, slices) =
            (caches.of::<Pod>(), caches.of::<Claim>(), caches.of::<Slice>());
        Self {
            pods_by_claim: pods_by_claim(&pods),
            claims_by_pool: claims.index("pools of devices", |claim, key| {
                for device in allocated_devices(claim) {
                    key(&pool_key(&device.driver, &device.pool));
                }
            }),
            slices_by_pool: slices.index("pool", |slice, key| {
                key(&pool_key(&slice.spec.driver, &slice.spec.pool.name));
            }),
            pods,
            claims,
            slices,
            accepts_pod_groups: context.gates.enabled("DRAWorkloadResourceClaims"),
        }
    }

    /// Returns the pods that name a claim.
    fn pods_of(&self, claim: &Claim) -> Vec<Arc<Pod>> {
        self.pods_by_claim.get(&index_key(&claim.meta().namespace, &claim.meta().name))
    }

    /// Enqueues the pods that name a claim.
    fn enqueue_pods_of(&self, claim: &Claim, enqueue: &Enqueue) {
        self.pods_of(claim).iter().for_each(|pod| enqueue.add(Key::of(&pod.meta)));
    }

    /// Enqueues the pods that use devices of a slice's pool, if the pool's `NoExecute` taints may have changed. A slice
    /// without taints matters too, because a newer generation hides older slices. Upstream: `handleSliceChange`.
    fn on_slice(&self, event: &CacheEvent<Slice>, enqueue: &Enqueue) {
        let slice = event.object();
        let taints = |slice: &Slice| {
            let taints = taints::no_execute_taints(slice);
            taints
                .map(|(device, _, taint)| (device.name.clone(), taint.clone()))
                .collect::<Vec<_>>()
        };
        let old = if let CacheEvent::Updated { old, .. } = event { Some(&**old) } else { None };
        if let Some(old) = old
            && old.spec.pool == slice.spec.pool
            && old.spec.driver == slice.spec.driver
            && taints(old) == taints(slice)
        {
            return;
        }
        for changed in old.into_iter().chain([&**slice]) {
            let pool = pool_key(&changed.spec.driver, &changed.spec.pool.name);
            let is_tainted = |slice: &Slice| taints::no_execute_taints(slice).next().is_some();
            let others = || self.slices_by_pool.get(&pool);
            if is_tainted(changed) || others().iter().any(|slice| is_tainted(slice)) {
                let claims = self.claims_by_pool.get(&pool);
                claims.iter().for_each(|claim| self.enqueue_pods_of(claim, enqueue));
            }
        }
    }

    /// Enqueues the pods that use devices that a rule selects or selected. Upstream: `handleRuleChange`.
    fn on_rule(&self, event: &CacheEvent<Rule>, enqueue: &Enqueue) {
        let rule = event.object();
        let old = if let CacheEvent::Updated { old, .. } = event { Some(&**old) } else { None };
        if old.is_some_and(|old| old.meta().uid == rule.meta().uid && old.spec == rule.spec) {
            return;
        }
        for rule in old.into_iter().chain([&**rule]).filter(|rule| taints::evicts(rule)) {
            let claims = self.claims_with(rule);
            claims.iter().for_each(|claim| self.enqueue_pods_of(claim, enqueue));
        }
    }

    /// Returns the claims with an allocated device that the rule selects.
    fn claims_with(&self, rule: &Rule) -> Vec<Arc<Claim>> {
        let mut claims = self.claims.list();
        claims.retain(|claim| {
            allocated_devices(claim).iter().any(|device| taints::selects_allocated(rule, device))
        });
        claims
    }

    /// Returns a pod with its claims, and their slices if `with_slices`.
    fn observe_pod(&self, pod: Arc<Pod>, with_slices: bool) -> ObservedPod {
        let entries = pod.spec.resource_claims.iter();
        let claims = entries.filter_map(|entry| match claim_name(&pod, entry) {
            ClaimName::Is(name) => self.claims.get(&pod.meta.namespace, name),
            _ => None,
        });
        let claims = claims.map(|claim| {
            let slices = if with_slices { self.slices_of(&claim) } else { Vec::new() };
            ObservedClaim { claim, slices }
        });
        let claims = claims.collect();
        ObservedPod { pod, claims, accepts_pod_groups: self.accepts_pod_groups }
    }

    /// Returns the slices of the pools of a claim's devices.
    fn slices_of(&self, claim: &Claim) -> Vec<Arc<Slice>> {
        let devices = allocated_devices(claim).iter();
        let mut pools: Vec<_> =
            devices.map(|device| pool_key(&device.driver, &device.pool)).collect();
        pools.sort_unstable();
        pools.dedup();
        pools.iter().flat_map(|pool| self.slices_by_pool.get(pool)).collect()
    }
}

/// Returns the key of a pool in the indexes. The name of a driver has no slash.
fn pool_key(driver: &str, pool: &str) -> String {
    format!("{driver}/{pool}")
}

/// Decides when a pod is evicted because of tainted devices.
struct Pods {
    devices: Devices,
    /// Absent without the gate `DRADeviceTaintRules`.
    rules: Option<Cache<Rule>>,
}

impl Planner for Pods {
    type Observed = plan::Observed;
    type Memory = Memory;

    fn observe(&self, key: &Key, _: &Memory) -> Option<plan::Observed> {
        let pod = self.devices.pods.get(&key.namespace, &key.name)?;
        let mut rules = self.rules.as_ref().map(Cache::list).unwrap_or_default();
        rules.retain(|rule| taints::evicts(rule));
        Some(plan::Observed { pod: self.devices.observe_pod(pod, true), rules })
    }

    fn plan(&self, observed: &plan::Observed, memory: &Memory, now: Timestamp) -> (Plan, Memory) {
        plan::plan(observed, memory, now)
    }

    fn next(
        &self,
        observed: &plan::Observed,
        memory: &Memory,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        plan::next(observed, memory, outcomes, now)
    }

    fn remember(
        &self,
        observed: &plan::Observed,
        memory: &Memory,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Memory> {
        plan::ended(observed, memory, outcomes, now)?;
        Some(Memory::Evicted(observed.pod.pod.meta.uid.clone()))
    }

    fn describe(&self, observed: &plan::Observed, now: Timestamp) -> Description {
        plan::describe(observed, now)
    }
}

/// Decides the status of a DeviceTaintRule.
struct RuleStatus {
    rules: Cache<Rule>,
    devices: Devices,
    evicted: EvictedPods,
}

impl Planner for RuleStatus {
    type Observed = rule::Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<rule::Observed> {
        let rule = self.rules.get("", &key.name)?;
        let effect = &*rule.spec.taint.effect;
        // Other effects evict no pods, so that their number is not necessary.
        let counts_pods = matches!(effect, NO_EXECUTE | "None");
        let claims = if counts_pods { self.devices.claims_with(&rule) } else { Vec::new() };
        let pods = claims.iter().flat_map(|claim| self.devices.pods_of(claim));
        let pods: BTreeMap<Key, Arc<Pod>> = pods.map(|pod| (Key::of(&pod.meta), pod)).collect();
        let pods = pods.into_values().map(|pod| self.devices.observe_pod(pod, false)).collect();
        let slices = if effect == "None" { self.devices.slices.list() } else { Vec::new() };
        let evicted = self.evicted.of(&rule.meta().uid);
        Some(rule::Observed { rule, pods, claims, slices, evicted })
    }

    fn plan(&self, observed: &rule::Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (rule::plan(observed, now), ())
    }

    fn describe(&self, observed: &rule::Observed, _: Timestamp) -> Description {
        rule::describe(observed)
    }
}
