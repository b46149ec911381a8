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
mod in_use;
mod inventory;
mod pools;
mod requests;
mod result;
mod selectors;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod writes;

use evenkeel_api::{
    View as _,
    views::{DeviceClass, DeviceTaintRule, Pod, ResourceClaim, ResourceSlice},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    client::Client,
    plan::{Note, Target},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

use crate::{
    framework::{
        Action, Change, CycleState, Edit, Filter, Filtered, Handle, Hint, Interest, ObjectChange,
        Pending, Plugin, PostBind, PostFilter, PostFiltered, PreBind, PreEnqueue, PreFilter,
        PreFiltered, PreFlight, Rejection, Reserve, Resource, Score, Unprepared,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
    schedule::{Cycle, Unfit},
};
use attempt::Attempt;
use claims::Readiness;
use in_use::Tracker;
use inventory::Inventory;
use result::Allocation;
use selectors::Selectors;

/// What can be set about [`DynamicResources`]; upstream's `DynamicResourcesArgs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// How long devices are looked for on one node; as long as it takes when zero.
    pub filter_timeout: Duration,
    /// How long a pod waits for devices to be made ready.
    pub binding_timeout: Duration,
}

impl Default for Args {
    fn default() -> Self {
        Self { filter_timeout: Duration::from_secs(10), binding_timeout: Duration::from_secs(600) }
    }
}

/// Gives pods the devices that they claim.
#[derive(Default)]
pub struct DynamicResources {
    args: Args,
    seen: OnceLock<Seen>,
    selectors: Selectors,
    inventory: Mutex<Option<Arc<Inventory>>>,
    tracker: Arc<Mutex<Tracker>>,
    /// What was decided for pods that are on their way, by uid.
    on_way: Mutex<HashMap<Box<str>, OnWay>>,
}

/// What is decided for a pod: its claims, each with the devices that it is to get, if it has none.
#[derive(Debug, Clone)]
struct OnWay(Vec<(Arc<ResourceClaim>, Option<Allocation>)>);

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
}

impl Seen {
    fn new(handle: &Handle, tracker: &Arc<Mutex<Tracker>>) -> Self {
        let (claims, slices) = (handle.watch::<ResourceClaim>(), handle.watch::<ResourceSlice>());
        let rules = handle.watch::<DeviceTaintRule>();
        let (stale, changed) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        let (tracks, tells) = (Arc::clone(tracker), Arc::clone(&changed));
        claims.subscribe(move |event| {
            let mut tracker = tracks.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                CacheEvent::Deleted(claim) => tracker.gone(claim),
                CacheEvent::Updated { old, new } => {
                    if old.meta.uid != new.meta.uid {
                        tracker.gone(old);
                    }
                    tracker.seen(new);
                }
                CacheEvent::Added { object, .. } => tracker.seen(object),
            }
            drop(tracker);
            tells.notify_waiters();
        });
        let (of_slices, of_rules) = (Arc::clone(&stale), Arc::clone(&stale));
        slices.subscribe(move |_| of_slices.store(true, Ordering::Release));
        rules.subscribe(move |_| of_rules.store(true, Ordering::Release));
        let classes = handle.watch();
        Self { handle: handle.clone(), claims, slices, classes, rules, stale, changed }
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
        let mut tracker = locked(&self.tracker);
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
    fn after_claim(&self, pod: &Pod, edit: &Edit<Arc<ResourceClaim>>) -> Hint {
        let had = edit.before().is_some_and(|claim| claim.status.allocation.is_some());
        let Some(now) = edit.now() else { return Hint::when(had) };
        let Ok(claims) = self.claims(pod) else { return Hint::Skip };
        if had && now.status.allocation.is_none() {
            return Hint::Queue;
        }
        let uses = claims.iter().any(|claim| claim.meta.uid == now.meta.uid);
        Hint::when(uses && edit.before().is_none_or(|before| before.status != now.status))
    }

    /// Waits until the devices of the pod's claims are ready.
    async fn wait(&self, seen: &Seen, pod: &PodInfo, node: &str) -> Result<(), Unprepared> {
        let meta = &pod.pod.meta;
        let regarding = Target::of(Pod::kind(), meta);
        let message = format!("waiting for binding conditions for device on node {node}");
        let note = Note { regarding, warning: false, reason: "BindingConditionsPending", message };
        seen.handle.recorder.record(&note, "Scheduling", None);
        let patience = self.args.binding_timeout;
        let wait = async {
            loop {
                // Before looking, so that no change is missed.
                let changed = seen.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.is_ready(seen, &pod.pod).map_err(Unprepared::Refused)? {
                    return Ok(());
                }
                changed.await;
            }
        };
        tokio::select! {
            done = wait => done,
            () = seen.handle.clock.sleep(patience) => Err(Unprepared::Refused(
                "device binding timeout: context deadline exceeded".to_owned(),
            )),
        }
    }

    fn is_ready(&self, seen: &Seen, pod: &Pod) -> Result<bool, String> {
        let now = seen.handle.clock.now();
        for claim in self.claims(pod)? {
            match claims::readiness(&claim) {
                Readiness::Ready => {}
                Readiness::Failed(why) => return Err(why),
                Readiness::Waits if claims::is_overdue(&claim, self.args.binding_timeout, now) => {
                    return Err(format!("device binding timeout: claim={}", claim.meta.name));
                }
                Readiness::Waits => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn connect(&self, handle: &Handle) {
        self.seen.get_or_init(|| Seen::new(handle, &self.tracker));
    }

    fn events(&self) -> Vec<Interest> {
        vec![
            Interest::new(
                Resource::Node,
                &[Action::Add, Action::UpdateNodeLabel, Action::UpdateNodeAllocatable],
            ),
            Interest::new(Resource::ResourceClaim, &[Action::Add, Action::Update, Action::Delete]),
            Interest::new(Resource::TargetPod, &[Action::UpdatePodGeneratedResourceClaim]),
            Interest::new(Resource::DeviceClass, &[Action::Add, Action::Update]),
            Interest::new(Resource::ResourceSlice, &[Action::Add, Action::Update]),
        ]
    }

    fn hint(&self, pod: &PodInfo, change: &Change) -> Hint {
        match change {
            Change::Object(ObjectChange::ResourceClaim(edit)) => self.after_claim(&pod.pod, edit),
            Change::OwnUpdate { new, .. } => Hint::when(self.claims(&new.pod).is_ok()),
            _ => Hint::Queue,
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

impl PreEnqueue for DynamicResources {
    fn pre_enqueue(&self, pod: &PodInfo) -> Filtered {
        self.claims(&pod.pod).map(drop).map_err(Rejection::unresolvable)
    }
}

impl PreFilter for DynamicResources {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFiltered, Rejection> {
        let claims = self.claims(&pod.pod).map_err(Rejection::unresolvable)?;
        let Some(seen) = self.seen.get().filter(|_| !claims.is_empty()) else {
            return Ok(PreFiltered::Skip);
        };
        let class = |name: &str| seen.classes.get("", name);
        let in_use = {
            let tracker = locked(&self.tracker);
            attempt::check(&claims, &class, &|uid: &str| tracker.is_pending(uid))?;
            tracker.in_use()
        };
        let inventory = self.inventory(seen);
        state.put(Attempt::new(claims, &class, &self.selectors, inventory, in_use));
        Ok(PreFiltered::All)
    }
}

impl Filter for DynamicResources {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> Filtered {
        let (Some(attempt), Some(seen)) = (state.get::<Attempt>(), self.seen.get()) else {
            return Ok(());
        };
        let (clock, limit) = (&seen.handle.clock, self.args.filter_timeout);
        let now = clock.now();
        let deadline = if limit.is_zero() { None } else { now.saturating_add(limit).ok() };
        let over = || deadline.is_some_and(|deadline| clock.now() > deadline);
        attempt.filter(node.node(), self.args.binding_timeout, now, &over)
    }
}

impl PostFilter for DynamicResources {
    fn post_filter<'a>(
        &'a self,
        cycle: &'a mut Cycle<'_>,
        state: &'a CycleState,
        _: &'a Unfit,
    ) -> Pending<'a, PostFiltered> {
        let pod = cycle.pod();
        Box::pin(async move {
            let (Some(attempt), Some(seen)) = (state.get::<Attempt>(), self.seen.get()) else {
                return PostFiltered::default();
            };
            // Devices that are of use on some node only stand in the way of others.
            let Some(claim) = attempt.in_the_way(&pod.pod) else { return PostFiltered::default() };
            let message = match bind::deallocate(&seen.handle.client, &claim).await {
                Ok(_) => "deallocation of ResourceClaim completed".to_owned(),
                Err(error) => error.to_string(),
            };
            PostFiltered { message, ..PostFiltered::default() }
        })
    }
}

impl Score for DynamicResources {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        state.get::<Attempt>().map_or(0, |attempt| attempt.score(node.name()))
    }

    fn normalise(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        super::normalise(scores, false);
    }
}

impl Reserve for DynamicResources {
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> Filtered {
        let Some(attempt) = state.get::<Attempt>() else { return Ok(()) };
        let decided = attempt
            .decided(node)
            .ok_or_else(|| Rejection::error("claim allocation not found for node"))?;
        let mut tracker = locked(&self.tracker);
        for (claim, allocation) in &decided {
            if let Some(allocation) = allocation {
                tracker.decide(&claim.meta.uid, Arc::clone(&allocation.seen));
            }
        }
        drop(tracker);
        // The devices in use are no longer looked at: whoever changes them need not copy them.
        state.remove::<Attempt>();
        locked(&self.on_way).insert(pod.uid().into(), OnWay(decided));
        Ok(())
    }

    fn unreserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) {
        let Some(OnWay(decided)) = locked(&self.on_way).remove(pod.uid()) else { return };
        let mut tracker = locked(&self.tracker);
        for (claim, allocation) in &decided {
            if allocation.is_some() {
                tracker.abandon(&claim.meta.uid);
            }
        }
        drop(tracker);
        let Some(seen) = self.seen.get() else { return };
        for (claim, _) in decided {
            let (namespace, name) = (&claim.meta.namespace, &claim.meta.name);
            let claim = self.claim(seen, namespace, name).unwrap_or(claim);
            if claim.status.allocation.is_none() || !claims::is_reserved(&claim, &pod.pod) {
                continue;
            }
            let (client, pod) = (seen.handle.client.clone(), Arc::clone(&pod.pod));
            seen.handle.tasks.spawn("claim release", async move {
                if let Err(error) = bind::release(&client, &claim, &pod).await {
                    // It is tried again when the pod is, and by the controller of claims when the pod is gone.
                    let (namespace, name) = (&claim.meta.namespace, &claim.meta.name);
                    tracing::debug!(%namespace, %name, %error, "Claim not released");
                }
            });
        }
    }
}

impl PreBind for DynamicResources {
    fn pre_flight(&self, pod: &PodInfo, _: &str) -> PreFlight {
        if locked(&self.on_way).contains_key(pod.uid()) {
            PreFlight::Act { parallel: true }
        } else {
            PreFlight::Skip
        }
    }

    fn pre_bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> Pending<'a, Result<(), Unprepared>> {
        Box::pin(async move {
            let decided = locked(&self.on_way).get(pod.uid()).cloned();
            let (Some(OnWay(decided)), Some(seen)) = (decided, self.seen.get()) else {
                return Ok(());
            };
            let mut waits = false;
            for (claim, allocation) in decided {
                let claim = if claims::is_reserved(&claim, &pod.pod) {
                    claim
                } else {
                    let now = seen.handle.clock.now();
                    let written =
                        bind::reserve(client, &pod.pod, claim, allocation.as_ref(), now).await?;
                    locked(&self.tracker).wrote(Arc::clone(&written));
                    written
                };
                let has = claim.status.allocation.as_deref();
                waits |= has.is_some_and(claims::must_be_awaited);
            }
            if waits { self.wait(seen, pod, node).await } else { Ok(()) }
        })
    }
}

impl PostBind for DynamicResources {
    fn post_bind(&self, pod: &PodInfo, _: &str) {
        locked(&self.on_way).remove(pod.uid());
    }
}
