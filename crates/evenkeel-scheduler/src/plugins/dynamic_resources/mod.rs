//! DynamicResources: schedules pods to nodes that can provide the devices that they claim, and allocates the claims
//! before binding.
//!
//! Upstream: KEP-4381, `plugins/dynamicresources`, `k8s.io/dynamic-resource-allocation`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | requests, `firstAvailable`, `allocationMode` | `requests::claim_requests`, `requests::Choice` |
//! | CEL selectors of requests and classes | `selectors::Selector` |
//! | constraints (`matchAttribute`, `distinctAttribute`) | `constraint::Constraint` |
//! | pools, slices by node | `pools::gather`, `inventory::Inventory` |
//! | device taints and tolerations | `allocate::forbids` |
//! | partitionable devices (shared counters) | `allocate::consume_counters` |
//! | consumable capacity (KEP-5075) | `capacity::consumed`, `capacity::suffices` |
//! | extended resources backed by devices (KEP-5004) | `extended::ExtendedResourceRequest`, `extended_claims::ExtendedResourceClaims` |
//! | device binding conditions (KEP-5007) | `claims::readiness`, `waiting::check_readiness` |
//! | `status.allocation`, `status.reservedFor` | `result::allocation`, `bind::reservation` |
//! | in-flight allocations | `in_use::Tracker`, `assumed::AssumedClaims` |

mod allocate;
mod assumed;
mod attempt;
mod bind;
mod capacity;
mod claims;
mod constraint;
mod evaluations;
mod extended;
mod extended_claims;
mod hint;
mod in_use;
mod inventory;
mod pools;
mod requests;
mod result;
mod selectors;
#[cfg(test)]
mod tests;
mod waiting;

use evenkeel_api::views::{DeviceClass, DeviceTaintRule, Pod, ResourceClaim, ResourceSlice};
use evenkeel_runtime::cache::{Cache, CacheEvent};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

use super::resource_classes::ResourceClasses;
use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, EventResource, Filter, Handle,
        NominatingInfo, ObjectChange, Plugin, PluginFuture, PostBind, PostFilter, PostFilterPlan,
        PostFilterResult, PreBind, PreEnqueue, PreFilter, PreFilterResult, QueueingHint, Reserve,
        Score, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
    schedule::{Cycle, FitError},
};
use assumed::AssumedClaims;
use attempt::{Attempt, Extended, FilterContext, FilterResults};
use bind::act as writes;
use evaluations::Evaluations;
use extended::ExtendedResourceRequest;
use extended_claims::ExtendedResourceClaims;
use in_use::Tracker;
use inventory::Inventory;
use selectors::{Selector, SelectorCache};

/// Arguments of [`DynamicResources`].
///
/// Upstream: `DynamicResourcesArgs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// Timeout of the search on one node (`filterTimeout`). Zero disables it. Default: 10 s.
    pub filter_timeout: Duration,
    /// Timeout for device binding conditions (`bindingTimeout`). Default: 600 s.
    pub binding_timeout: Duration,
    /// Feature gate `DRAExtendedResource`. Default: true.
    pub extended_resources: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            filter_timeout: Duration::from_secs(10),
            binding_timeout: Duration::from_secs(600),
            extended_resources: true,
        }
    }
}

/// The DynamicResources plugin.
#[derive(Default)]
pub struct DynamicResources {
    args: Args,
    /// Set by [`Plugin::connect`].
    cluster: OnceLock<ClusterState>,
    /// Compiled CEL selectors, by expression.
    selectors: Mutex<SelectorCache>,
    /// Devices that the last attempt used.
    devices: Mutex<Option<Devices>>,
    /// Extended resources that DeviceClasses provide.
    resource_classes: Arc<ResourceClasses>,
    /// Claims of assumed pods, by pod uid.
    assumed: Mutex<HashMap<Box<str>, AssumedClaims>>,
}

/// Devices of all ResourceSlices, with the results of the selectors that were evaluated for them.
#[derive(Clone)]
struct Devices {
    inventory: Arc<Inventory>,
    evaluations: Arc<Mutex<Evaluations>>,
}

impl Devices {
    /// Returns the devices of a new inventory, with the selector results of `old` for slices that did not change.
    fn new(inventory: Inventory, old: Option<&Self>) -> Self {
        let evaluations = old.map(|old| lock(&old.evaluations).move_to(&old.inventory, &inventory));
        let evaluations = Arc::new(Mutex::new(evaluations.unwrap_or_default()));
        Self { inventory: Arc::new(inventory), evaluations }
    }
}

/// State of one attempt in the [`CycleState`]. Clones of the cycle state share it.
struct AttemptState {
    attempt: Attempt,
    devices: Devices,
    results: Mutex<FilterResults>,
}

/// Caches and state of a connected plugin.
struct ClusterState {
    handle: Handle,
    claims: Cache<ResourceClaim>,
    slices: Cache<ResourceSlice>,
    classes: Cache<DeviceClass>,
    rules: Cache<DeviceTaintRule>,
    /// Set when slices or taint rules change. The next attempt then rebuilds the inventory.
    inventory_is_stale: Arc<AtomicBool>,
    /// Notifies waiters of every change of a claim.
    claim_changed: Arc<Notify>,
    /// Devices in use, including the in-flight allocations of all profiles.
    allocation_tracker: Arc<Mutex<Tracker>>,
    extended_claims: Arc<Mutex<ExtendedResourceClaims>>,
}

impl ClusterState {
    fn new(handle: &Handle) -> Self {
        let claims = handle.watch::<ResourceClaim>();
        let slices = handle.watch::<ResourceSlice>();
        let rules = handle.watch::<DeviceTaintRule>();
        let inventory_is_stale = Arc::new(AtomicBool::new(true));
        let claim_changed = Arc::new(Notify::new());
        let tracker = handle.shared::<Mutex<Tracker>>();
        let extended_claims = handle.shared::<Mutex<ExtendedResourceClaims>>();
        let tracker_to_update = Arc::clone(&tracker);
        let claims_to_update = Arc::clone(&extended_claims);
        let to_notify = Arc::clone(&claim_changed);
        claims.subscribe(move |event| {
            let (deleted, current) = match event {
                CacheEvent::Deleted(claim) => (Some(claim), None),
                // A different uid means that the watch missed the deletion of the old claim.
                CacheEvent::Updated { old, new } if old.meta.uid != new.meta.uid => {
                    (Some(old), Some(new))
                }
                CacheEvent::Updated { new, .. } => (None, Some(new)),
                CacheEvent::Added { object, .. } => (None, Some(object)),
            };
            let mut tracker = lock(&tracker_to_update);
            let mut extended_claims = lock(&claims_to_update);
            if let Some(claim) = deleted {
                tracker.remove(claim);
                extended_claims.remove(claim);
            }
            if let Some(claim) = current {
                tracker.observe(claim);
                extended_claims.observe(claim);
            }
            drop((tracker, extended_claims));
            to_notify.notify_waiters();
        });
        let stale_by_slices = Arc::clone(&inventory_is_stale);
        let stale_by_rules = Arc::clone(&inventory_is_stale);
        slices.subscribe(move |_| stale_by_slices.store(true, Ordering::Release));
        rules.subscribe(move |_| stale_by_rules.store(true, Ordering::Release));
        let classes = handle.watch();
        let handle = handle.clone();
        Self {
            handle,
            claims,
            slices,
            classes,
            rules,
            inventory_is_stale,
            claim_changed,
            allocation_tracker: tracker,
            extended_claims,
        }
    }
}

impl std::fmt::Debug for DynamicResources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DynamicResources").field("args", &self.args).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DynamicResources {
    /// Returns the plugin with these arguments.
    pub fn new(args: Args) -> Self {
        Self { args, ..Self::default() }
    }

    /// Returns the latest known version of a claim.
    fn claim(
        &self,
        cluster: &ClusterState,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<ResourceClaim>> {
        let cached = cluster.claims.get(namespace, name)?;
        let mut tracker = lock(&cluster.allocation_tracker);
        tracker.forget_older_write(&cached);
        Some(tracker.latest(cached))
    }

    /// Returns the latest known version of each of the pod's claims.
    fn claims(&self, pod: &Pod) -> Result<Vec<Arc<ResourceClaim>>, String> {
        if pod.spec.resource_claims.is_empty() {
            return Ok(Vec::new());
        }
        let cluster = self.cluster.get();
        claims::of_pod(pod, |name| self.claim(cluster?, &pod.meta.namespace, name))
    }

    /// Returns the pod's extended resources that devices may provide.
    fn extended_resources(&self, cluster: &ClusterState, pod: &PodInfo) -> Extended {
        let class_of = |resource: &str| self.resource_classes.class_of(resource);
        let Some(extended_request) = ExtendedResourceRequest::for_pod(pod, class_of) else {
            return Extended::None;
        };
        match lock(&cluster.extended_claims).claim_of(&pod.pod) {
            Some(stale_claim) => Extended::Stale(stale_claim),
            None => Extended::Requested(extended_request),
        }
    }

    /// Returns the devices of all slices. Rebuilds the inventory if slices or taint rules have changed.
    fn devices(&self, cluster: &ClusterState) -> Devices {
        let mut devices = lock(&self.devices);
        let is_stale = cluster.inventory_is_stale.swap(false, Ordering::AcqRel);
        match &*devices {
            Some(devices) if !is_stale => devices.clone(),
            old => {
                let slices = cluster.slices.list();
                let rules = cluster.rules.list();
                let old_inventory = old.as_ref().map(|old| &*old.inventory);
                let inventory = Inventory::new(slices, rules, old_inventory);
                let new = Devices::new(inventory, old.as_ref());
                *devices = Some(new.clone());
                new
            }
        }
    }

    /// Returns the compiled selector, from the cache if possible.
    fn compile(&self, expression: &str) -> Arc<Selector> {
        lock(&self.selectors).get_or_compile(expression)
    }
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn connect(&self, handle: &Handle) {
        self.cluster.get_or_init(|| {
            if self.args.extended_resources {
                self.resource_classes.subscribe(handle);
            }
            ClusterState::new(handle)
        });
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(
                EventResource::Node,
                &[ActionType::Add, ActionType::UpdateNodeLabel, ActionType::UpdateNodeAllocatable],
            ),
            ClusterEvent::new(
                EventResource::ResourceClaim,
                &[ActionType::Add, ActionType::Update, ActionType::Delete],
            ),
            ClusterEvent::new(
                EventResource::TargetPod,
                &[ActionType::UpdatePodGeneratedResourceClaim],
            ),
            ClusterEvent::new(EventResource::DeviceClass, &[ActionType::Add, ActionType::Update]),
            ClusterEvent::new(EventResource::ResourceSlice, &[ActionType::Add, ActionType::Update]),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        match change {
            Change::Object(ObjectChange::ResourceClaim(edit)) => {
                hint::after_claim_change(&pod.pod, edit, || self.claims(&pod.pod))
            }
            Change::TargetPodUpdate { new, .. } => {
                QueueingHint::when(self.claims(&new.pod).is_ok())
            }
            _ => QueueingHint::Queue,
        }
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        Some(self)
    }
    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        Some(self)
    }
    fn as_post_bind(&self) -> Option<&dyn PostBind> {
        Some(self)
    }
}

/// Marker that this plugin's [`PreFilter`] ran in the attempt.
struct PreFilterRan;

/// Message if another plugin rejected the pod before this plugin's PreFilter ran. Upstream then does not find its
/// state, reports an error and skips the remaining PostFilter plugins.
const PRE_FILTER_SKIPPED: &str = "not found";

impl PreEnqueue for DynamicResources {
    fn pre_enqueue(&self, pod: &PodInfo) -> StatusResult {
        self.claims(&pod.pod).map(drop).map_err(Status::unresolvable)
    }
}

impl PreFilter for DynamicResources {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        state.put(PreFilterRan);
        let claims = self.claims(&pod.pod).map_err(Status::unresolvable)?;
        let Some(cluster) = self.cluster.get() else { return Ok(PreFilterResult::Skip) };
        let extended = self.extended_resources(cluster, pod);
        if claims.is_empty() && matches!(extended, Extended::None) {
            return Ok(PreFilterResult::Skip);
        }
        let class = |name: &str| cluster.classes.get("", name);
        let in_use = {
            let tracker = lock(&cluster.allocation_tracker);
            attempt::check_claims(&claims, &class, &|uid: &str| tracker.is_pending(uid))?;
            tracker.in_use()
        };
        let devices = self.devices(cluster);
        let compile = |expression: &str| self.compile(expression);
        let inventory = Arc::clone(&devices.inventory);
        let attempt = Attempt::new(claims, &class, &compile, inventory, in_use, extended);
        state.put(AttemptState { attempt, devices, results: Mutex::default() });
        Ok(PreFilterResult::All)
    }
}

impl Filter for DynamicResources {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let (Some(state), Some(cluster)) = (state.get::<AttemptState>(), self.cluster.get()) else {
            return Ok(());
        };
        let clock = &cluster.handle.clock;
        let timeout = self.args.filter_timeout;
        let now = clock.now();
        let deadline = if timeout.is_zero() { None } else { now.saturating_add(timeout).ok() };
        let context = FilterContext {
            binding_timeout: self.args.binding_timeout,
            now,
            is_timed_out: &|| deadline.is_some_and(|deadline| clock.now() > deadline),
            compile: &|expression| self.compile(expression),
            evaluate: &|offer, selector, device| {
                lock(&state.devices.evaluations).evaluate(offer, selector, device)
            },
        };
        state.attempt.filter(node.node(), &mut lock(&state.results), &context)
    }
}

/// PostFilter's action that may make devices available for a pod that fits on no node.
enum Release<'a> {
    /// No action, because this plugin's PreFilter did not run.
    PreFilterSkipped,
    /// No action, because no claim can be released.
    Nothing,
    /// Deallocate the pod's claim, because its devices are not accessible from some nodes.
    Deallocate(Arc<ResourceClaim>),
    /// Delete a claim for extended resources that an earlier attempt of the pod left behind.
    Delete(&'a ResourceClaim),
}

/// Decides which claim to deallocate or delete.
fn decide_release<'a>(state: &'a CycleState, pod: &PodInfo) -> Release<'a> {
    if state.get::<PreFilterRan>().is_none() {
        return Release::PreFilterSkipped;
    }
    let Some(AttemptState { attempt, results, .. }) = state.get() else { return Release::Nothing };
    let unavailable = attempt.unavailable_claim(&pod.pod, &lock(results));
    match (unavailable, attempt.stale_claim()) {
        (Some(claim), _) => Release::Deallocate(claim),
        (None, Some(claim)) => Release::Delete(claim),
        (None, None) => Release::Nothing,
    }
}

/// Returns the result that ends PostFilter with [`PRE_FILTER_SKIPPED`].
fn pre_filter_skipped_result() -> PostFilterResult {
    PostFilterResult {
        message: PRE_FILTER_SKIPPED.into(),
        done: true,
        nominating_info: NominatingInfo::Keep,
    }
}

impl PostFilter for DynamicResources {
    fn post_filter<'a>(
        &'a self,
        cycle: &'a mut Cycle<'_>,
        state: &'a CycleState,
        _: &'a FitError,
    ) -> PluginFuture<'a, PostFilterResult> {
        let pod = cycle.pod();
        Box::pin(async move {
            let client = self.cluster.get().map(|cluster| &cluster.handle.client);
            let (outcome, action) = match (decide_release(state, pod), client) {
                (Release::PreFilterSkipped, _) => return pre_filter_skipped_result(),
                (Release::Nothing, _) | (_, None) => return PostFilterResult::default(),
                (Release::Deallocate(claim), Some(client)) => {
                    (writes::deallocate(client, &claim).await.map(drop), "deallocation")
                }
                (Release::Delete(claim), Some(client)) => {
                    (writes::delete(client, claim).await, "deletion")
                }
            };
            let message = match outcome {
                Ok(()) => format!("{action} of ResourceClaim completed"),
                Err(error) => error.to_string(),
            };
            PostFilterResult { message, ..PostFilterResult::default() }
        })
    }

    fn plan(&self, cycle: &mut Cycle<'_>, state: &CycleState, _: &FitError) -> PostFilterPlan {
        match decide_release(state, cycle.pod()) {
            Release::PreFilterSkipped => {
                PostFilterPlan { result: pre_filter_skipped_result(), ..PostFilterPlan::default() }
            }
            // The message depends on the API server's response, so a dry run cannot predict it.
            _ => PostFilterPlan::default(),
        }
    }
}

impl Score for DynamicResources {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        let state = state.get::<AttemptState>();
        state.map_or(0, |state| state.attempt.score(node.name(), &lock(&state.results)))
    }

    fn normalize_score(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        super::default_normalize_score(scores);
    }
}
