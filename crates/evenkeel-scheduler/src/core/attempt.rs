//! One scheduling attempt and its result: the pod is assumed on a node until it is bound or requeued.
//!
//! Upstream: `pkg/scheduler/schedule_one.go`.

use evenkeel_api::time::Timestamp;
use std::{sync::Arc, time::Duration};

use super::Core;
use crate::{
    framework::{
        Code, CycleState, ExtensionPoint, PermitResult, Plugin, Profile, Status, StatusResult,
        WaitingPod, guarded, guarded_future,
    },
    pod::PodInfo,
    queue::{PluginSet, Popped},
    schedule::{Cycle, FitError, Outcome, Trace, View, schedule_pod},
};

/// Maximum delay of a binding by one Permit plugin.
///
/// Upstream: `maxTimeout`.
const MAX_PERMIT_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// A finished attempt with its measurements.
pub(crate) struct AttemptOutcome {
    pub(crate) result: AttemptResult,
    pub(crate) trace: Trace,
    pub(crate) profile: usize,
}

/// Outcome of an attempt.
pub(crate) enum AttemptResult {
    /// Run the binding cycle, then call [`Core::finish_binding`] or [`Core::handle_binding_cycle_error`].
    Bind(AssumedPod),
    /// The pod was requeued. Report the failure in its status.
    Failed(SchedulingFailure),
    /// The pod was skipped because it is being deleted.
    Deleting(PodInfo),
    /// The pod was skipped because it is already assumed.
    Dropped,
}

/// A pod that is assumed on a node.
pub(crate) struct AssumedPod {
    pub(crate) popped: Popped,
    pub(crate) node: Arc<str>,
    /// Set while Permit plugins delay the binding.
    pub(crate) waiting: Option<WaitingPod>,
    /// Whether the duration of each plugin call is recorded.
    pub(crate) sampled: bool,
    state: CycleState,
}

/// An attempt that found no node, or whose binding failed.
#[derive(Debug)]
pub(crate) struct SchedulingFailure {
    /// The latest known version of the pod.
    pub(crate) info: PodInfo,
    pub(crate) profile: usize,
    pub(crate) message: String,
    /// Whether an error ended the attempt. Otherwise plugins rejected the pod.
    pub(crate) error: bool,
    /// Node to nominate; an empty name clears the nomination, `None` keeps it.
    pub(crate) nominated: Option<Arc<str>>,
}

/// Reason why a binding cycle did not bind the pod.
#[derive(Debug)]
pub(crate) enum BindingFailure {
    /// The plugin with this index in the profile rejected the pod.
    Rejected(usize, Status),
    /// An error ended the binding cycle.
    Failed(String),
}

impl Core {
    /// Pops a pod and tries to schedule it. Returns `None` if no pod is due. Only extender calls suspend it.
    ///
    /// Upstream: `ScheduleOne`, `schedulingCycle`.
    pub(crate) async fn schedule_one(&mut self, now: Timestamp) -> Option<AttemptOutcome> {
        let popped = self.queue.pop(now)?;
        let profile = popped.profile;
        let skipped = |result| Some(AttemptOutcome { result, trace: Trace::default(), profile });
        if popped.info.pod.meta.deleting() {
            self.queue.remove(&popped.uid);
            return skipped(AttemptResult::Deleting(popped.info));
        }
        if self.assumed.contains(&*popped.uid) {
            self.queue.remove(&popped.uid);
            return skipped(AttemptResult::Dropped);
        }
        self.seed = self.seed.wrapping_add(1);
        let mut state = CycleState::default();
        let view = View {
            profile: &self.profiles[profile],
            nodes: &mut self.nodes,
            nominator: self.queue.nominator(),
            start: self.start,
        };
        let mut cycle = Cycle::new(view, &popped.info, self.seed, &self.extenders);
        cycle.measure(self.stopwatch);
        let Outcome { result, next_start, .. } =
            schedule_pod(&mut cycle, &mut state, self.metrics.as_ref()).await;
        self.start = next_start;
        let (result, trace) = match result {
            Ok(chosen) => {
                let mut trace = cycle.into_trace();
                (
                    self.assume_and_reserve(popped, chosen.suggested_host, state, now, &mut trace),
                    trace,
                )
            }
            Err(fit_error) => {
                let (message, nominated) =
                    run_post_filter_plugins(&mut cycle, &state, &fit_error).await;
                let trace = cycle.into_trace();
                (
                    AttemptResult::Failed(
                        self.handle_fit_error(&popped, &fit_error, message, nominated, now),
                    ),
                    trace,
                )
            }
        };
        Some(AttemptOutcome { result, trace, profile })
    }

    /// Assumes the pod on the node and runs the Reserve and Permit plugins.
    ///
    /// Upstream: `assumeAndReserve`.
    fn assume_and_reserve(
        &mut self,
        popped: Popped,
        node: Arc<str>,
        mut state: CycleState,
        now: Timestamp,
        trace: &mut Trace,
    ) -> AttemptResult {
        self.nodes.place(popped.info.clone(), &node);
        self.assumed.insert((&*popped.uid).into());
        self.queue.nominator_mut().delete_nominated_pod(&popped.uid);
        let profile = &self.profiles[popped.profile];
        let began = trace.now();
        let reserved = run_reserve_plugins(profile, &mut state, &popped.info, &node, trace);
        trace.ran(ExtensionPoint::Reserve, began, reserved.as_ref().err().map(|(_, why)| why));
        let permitted = reserved.and_then(|()| {
            let began = trace.now();
            let permitted = run_permit_plugins(profile, &state, &popped.info, &node, trace);
            trace.ran(ExtensionPoint::Permit, began, permitted.as_ref().err().map(|(_, why)| why));
            permitted
        });
        let sampled = trace.times_plugins();
        let mut assumed = AssumedPod { popped, node, waiting: None, sampled, state };
        match permitted {
            Err((plugin, why)) => {
                let popped = self.unreserve_and_forget(assumed);
                // The scheduler has rejected no other pod while this pod was assumed, so it requeues none.
                self.nodes.remove(&popped.uid);
                AttemptResult::Failed(self.handle_rejection(&popped, plugin, &why, now))
            }
            Ok(waits) if waits.is_empty() => {
                // A later failure requeues the pod anyway, so the queue need not keep in-flight events for it.
                self.queue.done(&assumed.popped.uid);
                AttemptResult::Bind(assumed)
            }
            Ok(waits) => {
                let (info, node) = (assumed.popped.info.clone(), Arc::clone(&assumed.node));
                assumed.waiting = Some(self.waiting_pods.add(info, node, waits, now));
                AttemptResult::Bind(assumed)
            }
        }
    }

    /// Unreserves the pod in reverse plugin order. The caller removes it from its node.
    ///
    /// Upstream: `unreserveAndForget`.
    fn unreserve_and_forget(&mut self, assumed: AssumedPod) -> Popped {
        let AssumedPod { popped, node, mut state, .. } = assumed;
        self.waiting_pods.remove(&popped.uid);
        for (_, plugin) in self.profiles[popped.profile].at(ExtensionPoint::Reserve).rev() {
            let Some(reserve) = plugin.as_reserve() else { continue };
            // The other plugins still have to release their reservations, even if this one panics.
            let released = guarded(|| reserve.unreserve(&mut state, &popped.info, &node));
            log_panic("Unreserve", plugin, &popped.info, released);
        }
        popped
    }

    /// Requeues a pod that a Reserve or Permit plugin rejected. `plugin` is the index of that plugin in the profile.
    fn handle_rejection(
        &mut self,
        popped: &Popped,
        plugin: usize,
        why: &Status,
        now: Timestamp,
    ) -> SchedulingFailure {
        let reasons = why.reasons.join(", ");
        let set: PluginSet = [plugin].into_iter().collect();
        let none = PluginSet::default();
        let (rejectors, pending) = match why.code {
            Code::Error => (none, none),
            Code::Pending => (set, set),
            Code::Unschedulable | Code::UnschedulableAndUnresolvable => (set, none),
        };
        let message = match why.code {
            Code::Error => reasons,
            _ => format!("0/1 nodes are available: 1 {reasons}."),
        };
        self.handle_scheduling_failure(popped, rejectors, pending, message, Some("".into()), now)
    }

    /// Requeues a pod that fits no node.
    fn handle_fit_error(
        &mut self,
        popped: &Popped,
        fit_error: &FitError,
        message: String,
        nominated: Option<Arc<str>>,
        now: Timestamp,
    ) -> SchedulingFailure {
        let (rejectors, pending) = match fit_error.error() {
            Some(_) => Default::default(),
            None => rejectors(fit_error),
        };
        self.handle_scheduling_failure(popped, rejectors, pending, message, nominated, now)
    }

    /// Requeues the pod and updates its nomination.
    ///
    /// Upstream: `handleSchedulingFailure`.
    fn handle_scheduling_failure(
        &mut self,
        popped: &Popped,
        rejectors: PluginSet,
        pending: PluginSet,
        message: String,
        nominated: Option<Arc<str>>,
        now: Timestamp,
    ) -> SchedulingFailure {
        let error = rejectors.union(pending).is_empty();
        self.assumed.remove(&*popped.uid);
        self.queue.add_unschedulable_pod(&popped.uid, rejectors, pending, now);
        let info = self.queue.get(&popped.uid).unwrap_or(&popped.info).clone();
        if self.queue.get(&popped.uid).is_some() {
            let node = nominated.as_deref().unwrap_or(&info.pod.status.nominated_node_name);
            self.queue.nominator_mut().add_nominated_pod(&info, node);
        }
        SchedulingFailure { info, profile: popped.profile, message, error, nominated }
    }

    /// Runs the PostBind plugins and removes the bound pod from the queue.
    pub(crate) fn finish_binding(&mut self, assumed: &AssumedPod) {
        let AssumedPod { popped, node, .. } = assumed;
        self.waiting_pods.remove(&popped.uid);
        self.queue.remove(&popped.uid);
        for (_, plugin) in self.profiles[popped.profile].at(ExtensionPoint::PostBind) {
            let Some(post_bind) = plugin.as_post_bind() else { continue };
            let informed = guarded(|| post_bind.post_bind(&popped.info, node));
            log_panic("PostBind", plugin, &popped.info, informed);
        }
    }

    /// Unreserves and requeues a pod that was not bound. Returns the failure to report, or `None` if the pod was
    /// deleted.
    ///
    /// Upstream: `handleBindingCycleError`.
    pub(crate) fn handle_binding_cycle_error(
        &mut self,
        assumed: AssumedPod,
        cause: BindingFailure,
        now: Timestamp,
    ) -> Option<SchedulingFailure> {
        let popped = self.unreserve_and_forget(assumed);
        // If the cache already shows the pod on its node, the binding succeeded, whatever its response said.
        let assumed_pod = match self.assumed.remove(&*popped.uid) {
            true => self.nodes.remove(&popped.uid).map(|(pod, _)| pod),
            false => None,
        };
        let queued = self.queue.get(&popped.uid).is_some();
        match cause {
            BindingFailure::Rejected(plugin, why) => {
                // The pod is requeued before the event about its freed resources: its own removal must not requeue it.
                let failure = queued.then(|| self.handle_rejection(&popped, plugin, &why, now));
                if let Some(assumed_pod) = assumed_pod {
                    let uid = Arc::clone(&popped.uid);
                    self.requeue_after_pod_delete(assumed_pod, now, |other| *other.uid() != *uid);
                }
                failure
            }
            BindingFailure::Failed(message) => {
                if let Some(assumed_pod) = assumed_pod {
                    self.requeue_after_pod_delete(assumed_pod, now, |_| true);
                }
                let (none, clear) = (PluginSet::default(), Some("".into()));
                queued.then(|| {
                    self.handle_scheduling_failure(&popped, none, none, message, clear, now)
                })
            }
        }
    }
}

/// Runs the PostFilter plugins. Returns the message to report and the nomination.
///
/// Upstream: `RunPostFilterPlugins`.
async fn run_post_filter_plugins(
    cycle: &mut Cycle<'_>,
    state: &CycleState,
    fit_error: &FitError,
) -> (String, Option<Arc<str>>) {
    let clear = Some(Arc::from(""));
    if let Some(without_post_filter) = fit_error.without_post_filter() {
        return (without_post_filter.to_owned(), clear);
    }
    let plugins: Vec<_> = cycle.profile().at(ExtensionPoint::PostFilter).collect();
    if plugins.is_empty() {
        return (fit_error.to_string(), clear);
    }
    let (began, mut nominated, mut messages) = (cycle.trace_mut().now(), None, Vec::new());
    let mut found = false;
    for (index, plugin) in plugins {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_post_filter()) else { continue };
        let began = cycle.trace_mut().begin();
        cycle.record_changes();
        let answer = guarded_future(async { plugin.post_filter(cycle, state, fit_error).await });
        let answer = match answer.await {
            // The plugin has restored the nodes that it changed.
            Ok(answer) => answer,
            Err(panic) => {
                cycle.undo_changes();
                let why = Status::error(format!("running PostFilter plugin \"{name}\": {panic}"));
                cycle.trace_mut().took(ExtensionPoint::PostFilter, index, began, Some(&why));
                messages.extend(why.reasons.iter().map(ToString::to_string));
                break;
            }
        };
        let why = (!answer.done).then(|| Status::unschedulable(""));
        cycle.trace_mut().took(ExtensionPoint::PostFilter, index, began, why.as_ref());
        if answer.done {
            // The result of a successful plugin replaces those of earlier plugins.
            messages.clear();
            nominated = None;
            found = true;
        }
        if !answer.message.is_empty() {
            messages.push(answer.message);
        }
        nominated = answer.nominated.or(nominated);
        if found {
            break;
        }
    }
    messages.extend(cycle.failure());
    let why = (!found).then(|| Status::unschedulable(""));
    cycle.trace_mut().ran(ExtensionPoint::PostFilter, began, why.as_ref());
    (fit_error.message_with(&messages), nominated)
}

/// Runs the Reserve plugins until one fails.
///
/// # Errors
///
/// Returns the index of that plugin and its status.
///
/// Upstream: `RunReservePluginsReserve`.
fn run_reserve_plugins(
    profile: &Profile,
    state: &mut CycleState,
    pod: &PodInfo,
    node: &str,
    trace: &mut Trace,
) -> Result<(), (usize, Status)> {
    for (index, plugin) in profile.at(ExtensionPoint::Reserve) {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_reserve()) else { continue };
        let began = trace.begin();
        let reserved = guarded(|| plugin.reserve(state, pod, node)).unwrap_or_else(Err);
        trace.took(ExtensionPoint::Reserve, index, began, reserved.as_ref().err());
        reserved.map_err(|why| (index, with_plugin_name(why, "Reserve", name)))?;
    }
    Ok(())
}

/// Runs the Permit plugins. Returns those that delay the binding, with their timeouts.
///
/// # Errors
///
/// Returns the index of the plugin that rejected the pod, and its status.
///
/// Upstream: `RunPermitPlugins`.
fn run_permit_plugins(
    profile: &Profile,
    state: &CycleState,
    pod: &PodInfo,
    node: &str,
    trace: &mut Trace,
) -> Result<Vec<(&'static str, Duration)>, (usize, Status)> {
    let mut waits = Vec::new();
    for (index, plugin) in profile.at(ExtensionPoint::Permit) {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_permit()) else { continue };
        let began = trace.begin();
        let permitted = guarded(|| plugin.permit(state, pod, node));
        let permitted = permitted.unwrap_or_else(PermitResult::Reject);
        let why = match &permitted {
            PermitResult::Reject(why) => Some(why),
            PermitResult::Allow | PermitResult::Wait(_) => None,
        };
        trace.took(ExtensionPoint::Permit, index, began, why);
        match permitted {
            PermitResult::Allow => {}
            PermitResult::Reject(why) => {
                return Err((index, with_plugin_name(why, "Permit", name)));
            }
            PermitResult::Wait(limit) => waits.push((name, limit.min(MAX_PERMIT_TIMEOUT))),
        }
    }
    Ok(waits)
}

/// Logs a panic of a plugin whose result does not affect the pod.
fn log_panic(point: &str, plugin: &dyn Plugin, pod: &PodInfo, result: StatusResult) {
    if let Err(why) = result {
        let (plugin, meta, error) = (plugin.name(), &pod.pod.meta, why.reasons.join(", "));
        tracing::error!(point, plugin, namespace = %meta.namespace, name = %meta.name, error, "Plugin panicked");
    }
}

/// Prefixes the message of an error with the extension point and the plugin.
fn with_plugin_name(why: Status, point: &str, plugin: &str) -> Status {
    if why.code != Code::Error {
        return why;
    }
    let reasons = why.reasons.join(", ");
    Status::error(format!("running {point} plugin \"{plugin}\": {reasons}"))
}

/// Returns the plugins that rejected the pod, and those of them that returned the code `Pending`.
fn rejectors(fit_error: &FitError) -> (PluginSet, PluginSet) {
    if fit_error.n_nodes == 0 {
        return ([PluginSet::NO_NODES].into_iter().collect(), PluginSet::default());
    }
    let pending = fit_error.all().filter(|rejected| rejected.why.code == Code::Pending);
    (fit_error.plugins().into_iter().collect(), pending.map(|rejected| rejected.plugin).collect())
}
