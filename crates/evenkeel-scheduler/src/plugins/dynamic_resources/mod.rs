//! DynamicResources: a pod goes where the devices that it claims can be had, and is bound once they are its own.
//!
//! Devices are chosen for each node by a pure search ([`allocate`]) over what drivers offer ([`inventory`]) and what is in use
//! ([`in_use`]). What was chosen is written into the claims beside other attempts ([`bind`]). Upstream: KEP-4381 and those
//! that build on it, `plugins/dynamicresources`, `k8s.io/dynamic-resource-allocation`.

mod allocate;
mod attempt;
mod bind;
mod capacity;
mod claims;
mod constraint;
mod extended;
mod in_use;
mod inventory;
mod on_way;
mod pools;
mod requests;
mod result;
mod selectors;
mod special;
#[cfg(test)]
mod tests;
mod waiting;
#[cfg(test)]
mod writes;

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
        ActionType, Change, ClusterEvent, CycleState, Edit, EventResource, Filter, Handle,
        ObjectChange, Plugin, PluginFuture, PostBind, PostFilter, PostFilterResult, PreBind,
        PreEnqueue, PreFilter, PreFilterResult, Preview, QueueingHint, Reserve, Score, Status,
        StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
    schedule::{Cycle, Unfit},
};
use attempt::{Attempt, Extended};
use extended::Wish;
use in_use::Tracker;
use inventory::Inventory;
use on_way::OnWay;
use selectors::Selectors;
use special::Specials;

/// What can be set about [`DynamicResources`]; upstream's `DynamicResourcesArgs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// How long devices are looked for on one node; as long as it takes when zero.
    pub filter_timeout: Duration,
    /// How long a pod waits for devices to be made ready.
    pub binding_timeout: Duration,
    /// Whether extended resources can be devices.
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

/// Gives pods the devices that they claim.
#[derive(Default)]
pub struct DynamicResources {
    args: Args,
    seen: OnceLock<Seen>,
    selectors: Selectors,
    inventory: Mutex<Option<Arc<Inventory>>>,
    /// Extended resources that are devices.
    resource_classes: Arc<ResourceClasses>,
    /// What was decided for pods that are on their way, by uid.
    on_way: Mutex<HashMap<Box<str>, OnWay>>,
}

/// What it looks at.
struct Seen {
    handle: Handle,
    claims: Cache<ResourceClaim>,
    slices: Cache<ResourceSlice>,
    classes: Cache<DeviceClass>,
    rules: Cache<DeviceTaintRule>,
    /// The inventory is no longer what the caches show.
    stale: Arc<AtomicBool>,
    /// Told of each change of a claim.
    changed: Arc<Notify>,
    /// Devices in use: also by what was decided in other profiles.
    tracker: Arc<Mutex<Tracker>>,
    specials: Arc<Mutex<Specials>>,
}

impl Seen {
    fn new(handle: &Handle) -> Self {
        let (claims, slices) = (handle.watch::<ResourceClaim>(), handle.watch::<ResourceSlice>());
        let rules = handle.watch::<DeviceTaintRule>();
        let (stale, changed) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        let (tracker, specials) =
            (handle.shared::<Mutex<Tracker>>(), handle.shared::<Mutex<Specials>>());
        let (tracks, finds, tells) =
            (Arc::clone(&tracker), Arc::clone(&specials), Arc::clone(&changed));
        claims.subscribe(move |event| {
            let (gone, seen) = match event {
                CacheEvent::Deleted(claim) => (Some(claim), None),
                CacheEvent::Updated { old, new } => {
                    (Some(old).filter(|old| old.meta.uid != new.meta.uid), Some(new))
                }
                CacheEvent::Added { object, .. } => (None, Some(object)),
            };
            let (mut tracker, mut specials) = (locked(&tracks), locked(&finds));
            if let Some(gone) = gone {
                tracker.gone(gone);
                specials.gone(gone);
            }
            if let Some(seen) = seen {
                tracker.seen(seen);
                specials.seen(seen);
            }
            drop((tracker, specials));
            tells.notify_waiters();
        });
        let (of_slices, of_rules) = (Arc::clone(&stale), Arc::clone(&stale));
        slices.subscribe(move |_| of_slices.store(true, Ordering::Release));
        rules.subscribe(move |_| of_rules.store(true, Ordering::Release));
        let classes = handle.watch();
        let handle = handle.clone();
        Self { handle, claims, slices, classes, rules, stale, changed, tracker, specials }
    }
}

impl std::fmt::Debug for DynamicResources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DynamicResources").field("args", &self.args).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DynamicResources {
    /// With other arguments than the defaults.
    pub fn new(args: Args) -> Self {
        Self { args, ..Self::default() }
    }

    /// A claim as it is known best.
    fn claim(&self, seen: &Seen, namespace: &str, name: &str) -> Option<Arc<ResourceClaim>> {
        let cached = seen.claims.get(namespace, name)?;
        let mut tracker = locked(&seen.tracker);
        tracker.overtaken(&cached);
        Some(tracker.best(cached))
    }

    /// The pod's claims.
    fn claims(&self, pod: &Pod) -> Result<Vec<Arc<ResourceClaim>>, String> {
        if pod.spec.resource_claims.is_empty() {
            return Ok(Vec::new());
        }
        let seen = self.seen.get();
        claims::of_pod(pod, |name| self.claim(seen?, &pod.meta.namespace, name))
    }

    /// Which of the pod's extended resources may be devices.
    fn extended(&self, seen: &Seen, pod: &PodInfo) -> Extended {
        let class_of = |resource: &str| self.resource_classes.class_of(resource);
        let Some(wish) = Wish::of(pod, class_of) else { return Extended::None };
        let stale = locked(&seen.specials).of(&pod.pod);
        stale.map_or(Extended::Wish(wish), Extended::Stale)
    }

    /// All devices there are.
    fn inventory(&self, seen: &Seen) -> Arc<Inventory> {
        let mut inventory = locked(&self.inventory);
        let stale = seen.stale.swap(false, Ordering::AcqRel);
        match &*inventory {
            Some(known) if !stale => Arc::clone(known),
            before => {
                let (slices, rules) = (seen.slices.list(), seen.rules.list());
                let new = Arc::new(Inventory::new(slices, rules, before.as_deref()));
                *inventory = Some(Arc::clone(&new));
                new
            }
        }
    }

    /// Whether a change of a claim may help the pod.
    fn after_claim(&self, pod: &Pod, edit: &Edit<Arc<ResourceClaim>>) -> QueueingHint {
        let had = edit.before().is_some_and(|claim| claim.status.allocation.is_some());
        let Some(now) = edit.now() else {
            let is_stale = |claim: &ResourceClaim| {
                extended::is_special(claim) && claim.meta.controlled_by(&pod.meta.uid)
            };
            return QueueingHint::when(had || edit.before().is_some_and(|claim| is_stale(claim)));
        };
        let Ok(claims) = self.claims(pod) else { return QueueingHint::Skip };
        if had && now.status.allocation.is_none() {
            return QueueingHint::Queue;
        }
        let uses = claims.iter().any(|claim| claim.meta.uid == now.meta.uid);
        QueueingHint::when(uses && edit.before().is_none_or(|before| before.status != now.status))
    }
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn connect(&self, handle: &Handle) {
        self.seen.get_or_init(|| {
            if self.args.extended_resources {
                self.resource_classes.follow(handle);
            }
            Seen::new(handle)
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
            Change::Object(ObjectChange::ResourceClaim(edit)) => self.after_claim(&pod.pod, edit),
            Change::OwnUpdate { new, .. } => QueueingHint::when(self.claims(&new.pod).is_ok()),
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

/// That the attempt got as far as to this plugin's [`PreFilter`].
struct Asked;

/// What is told where it did not: another plugin refused the pod before. Upstream misses its own state then, takes that for an
/// error, and asks no other plugin for a way out.
const NOT_ASKED: &str = "not found";

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
        state.put(Asked);
        let claims = self.claims(&pod.pod).map_err(Status::unresolvable)?;
        let Some(seen) = self.seen.get() else { return Ok(PreFilterResult::Skip) };
        let extended = self.extended(seen, pod);
        if claims.is_empty() && matches!(extended, Extended::None) {
            return Ok(PreFilterResult::Skip);
        }
        let class = |name: &str| seen.classes.get("", name);
        let in_use = {
            let tracker = locked(&seen.tracker);
            attempt::check(&claims, &class, &|uid: &str| tracker.is_pending(uid))?;
            tracker.in_use()
        };
        let inventory = self.inventory(seen);
        state.put(Attempt::new(claims, &class, &self.selectors, inventory, in_use, extended));
        Ok(PreFilterResult::All)
    }
}

impl Filter for DynamicResources {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let (Some(attempt), Some(seen)) = (state.get::<Attempt>(), self.seen.get()) else {
            return Ok(());
        };
        let (clock, limit) = (&seen.handle.clock, self.args.filter_timeout);
        let now = clock.now();
        let deadline = if limit.is_zero() { None } else { now.saturating_add(limit).ok() };
        let over = || deadline.is_some_and(|deadline| clock.now() > deadline);
        let patience = self.args.binding_timeout;
        attempt.filter(node.node(), patience, now, &over, &self.selectors)
    }
}

impl PostFilter for DynamicResources {
    fn post_filter<'a>(
        &'a self,
        cycle: &'a mut Cycle<'_>,
        state: &'a CycleState,
        _: &'a Unfit,
    ) -> PluginFuture<'a, PostFilterResult> {
        let pod = cycle.pod();
        Box::pin(async move {
            if state.get::<Asked>().is_none() {
                return PostFilterResult { message: NOT_ASKED.into(), done: true, nominated: None };
            }
            let (Some(attempt), Some(seen)) = (state.get::<Attempt>(), self.seen.get()) else {
                return PostFilterResult::default();
            };
            let client = &seen.handle.client;
            // Devices that are of use on some node only stand in the way of others.
            let (done, what) = if let Some(claim) = attempt.in_the_way(&pod.pod) {
                (bind::deallocate(client, &claim).await.map(drop), "deallocation")
            } else if let Some(claim) = attempt.stale() {
                (special::delete(client, claim).await, "deletion")
            } else {
                return PostFilterResult::default();
            };
            let message = match done {
                Ok(()) => format!("{what} of ResourceClaim completed"),
                Err(error) => error.to_string(),
            };
            PostFilterResult { message, ..PostFilterResult::default() }
        })
    }

    fn preview(&self, _: &mut Cycle<'_>, state: &CycleState, _: &Unfit) -> Preview {
        match state.get::<Asked>() {
            Some(Asked) => Preview::default(),
            None => Preview { message: NOT_ASKED.into(), done: true, ..Preview::default() },
        }
    }
}

impl Score for DynamicResources {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        state.get::<Attempt>().map_or(0, |attempt| attempt.score(node.name()))
    }

    fn normalize_score(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        super::default_normalize_score(scores, false);
    }
}
