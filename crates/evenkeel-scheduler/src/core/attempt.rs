//! One scheduling attempt and its result. After a successful attempt, the pod is assumed on a node until it is bound or
//! requeued.
//!
//! Upstream: `pkg/scheduler/schedule_one.go`.

use evenkeel_api::time::Timestamp;
use std::{sync::Arc, time::Duration};

use super::Core;
use crate::{
    framework::{
        Code, CycleState, ExtensionPoint, NominatingInfo, PermitResult, Plugin, PluginRejection,
        Profile, Status, StatusResult, WaitingPod, catch_plugin_panic, catch_plugin_panic_async,
    },
    pod::PodInfo,
    queue::{PluginSet, PoppedPod, Rejectors},
    schedule::{Cycle, FitError, Outcome, ScheduleResult, Trace, View, schedule_pod},
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
    /// The pod was skipped because it is already assumed on a node.
    AlreadyAssumed,
}

/// A pod that is assumed on a node.
pub(crate) struct AssumedPod {
    pub(crate) popped: PoppedPod,
    pub(crate) node: Arc<str>,
    /// Set if Permit plugins delay the binding.
    pub(crate) waiting: Option<WaitingPod>,
    /// Whether the duration of each plugin call is recorded.
    pub(crate) is_sampled: bool,
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
    pub(crate) is_error: bool,
    pub(crate) nominating_info: NominatingInfo,
}

/// Reason why a binding cycle did not bind the pod.
#[derive(Debug)]
pub(crate) enum BindingFailure {
    /// A plugin rejected the pod.
    Rejected(PluginRejection),
    /// An error ended the binding cycle.
    Failed(String),
}

impl Core {
    /// Pops a pod and tries to schedule it. Returns `None` if no pod is due. The future only waits for extender calls.
    ///
    /// Upstream: `ScheduleOne`, `schedulingCycle`.
    pub(crate) async fn schedule_one(&mut self, now: Timestamp) -> Option<AttemptOutcome> {
        let popped = self.queue.pop(now)?;
        let profile = popped.profile;
        let without_attempt =
            |result| Some(AttemptOutcome { result, trace: Trace::default(), profile });
        if popped.info.pod.meta.deleting() {
            self.queue.remove(&popped.uid);
            return without_attempt(AttemptResult::Deleting(popped.info));
        }
        if self.assumed.contains(&*popped.uid) {
            self.queue.remove(&popped.uid);
            return without_attempt(AttemptResult::AlreadyAssumed);
        }
        self.seed = self.seed.wrapping_add(1);
        let mut state = CycleState::default();
        let view = View {
            profile: &self.profiles[profile],
            nodes: &mut self.nodes,
            nominator: self.queue.nominator(),
            start_node_index: self.start_node_index,
        };
        let mut cycle = Cycle::new(view, &popped.info, self.seed, &self.extenders);
        cycle.set_stopwatch(self.stopwatch);
        let Outcome { result, next_start_node_index, .. } =
            schedule_pod(&mut cycle, &mut state, self.metrics.as_ref()).await;
        self.start_node_index = next_start_node_index;
        let (result, trace) = match result {
            Ok(ScheduleResult { suggested_host, .. }) => {
                let mut trace = cycle.into_trace();
                let result =
                    self.assume_and_reserve(popped, suggested_host, state, now, &mut trace);
                (result, trace)
            }
            Err(fit_error) => {
                let failed = run_post_filter_plugins(&mut cycle, &state, &fit_error).await;
                let trace = cycle.into_trace();
                let failure = self.handle_fit_error(&popped, &fit_error, failed, now);
                (AttemptResult::Failed(failure), trace)
            }
        };
        Some(AttemptOutcome { result, trace, profile })
    }

    /// Assumes the pod on the node and runs the Reserve and Permit plugins.
    ///
    /// Upstream: `assumeAndReserve`.
    fn assume_and_reserve(
        &mut self,
        popped: PoppedPod,
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
        trace.record_point(
            ExtensionPoint::Reserve,
            began,
            reserved.as_ref().err().map(|error| &error.status),
        );
        let permitted = reserved.and_then(|()| {
            let began = trace.now();
            let result = run_permit_plugins(profile, &state, &popped.info, &node, trace);
            trace.record_point(
                ExtensionPoint::Permit,
                began,
                result.as_ref().err().map(|error| &error.status),
            );
            result
        });
        let is_sampled = trace.is_sampled();
        let mut assumed = AssumedPod { popped, node, waiting: None, is_sampled, state };
        match permitted {
            Err(rejection) => {
                let popped = self.unreserve_and_forget(assumed);
                // No other attempt ran while this pod was assumed, so its removal cannot make another pod schedulable.
                self.nodes.remove(&popped.uid);
                AttemptResult::Failed(self.handle_rejection(&popped, &rejection, now))
            }
            Ok(pending_plugins) if pending_plugins.is_empty() => {
                // A later failure requeues the pod in any case, so the queue need not keep in-flight events for it.
                self.queue.done(&assumed.popped.uid);
                AttemptResult::Bind(assumed)
            }
            Ok(pending_plugins) => {
                let info = assumed.popped.info.clone();
                let node = Arc::clone(&assumed.node);
                assumed.waiting = Some(self.waiting_pods.add(info, node, pending_plugins, now));
                AttemptResult::Bind(assumed)
            }
        }
    }

    /// Unreserves the pod in reverse plugin order. The caller removes it from its node.
    ///
    /// Upstream: `unreserveAndForget`.
    fn unreserve_and_forget(&mut self, assumed: AssumedPod) -> PoppedPod {
        let AssumedPod { popped, node, mut state, .. } = assumed;
        self.waiting_pods.remove(&popped.uid);
        for (_, plugin) in self.profiles[popped.profile].at(ExtensionPoint::Reserve).rev() {
            let Some(reserve) = plugin.as_reserve() else { continue };
            // Even if this plugin panics, the other plugins must release their reservations.
            let result = catch_plugin_panic(|| reserve.unreserve(&mut state, &popped.info, &node));
            log_panic("Unreserve", plugin, &popped.info, result);
        }
        popped
    }

    /// Requeues a pod that a Reserve or Permit plugin rejected.
    fn handle_rejection(
        &mut self,
        popped: &PoppedPod,
        PluginRejection { plugin, status }: &PluginRejection,
        now: Timestamp,
    ) -> SchedulingFailure {
        let reasons = status.reasons.join(", ");
        let rejector: PluginSet = [*plugin].into_iter().collect();
        let rejectors = match status.code {
            Code::Error => Rejectors::default(),
            Code::Pending => Rejectors { unschedulable: rejector, pending: rejector },
            Code::Unschedulable | Code::UnschedulableAndUnresolvable => {
                Rejectors { unschedulable: rejector, pending: PluginSet::default() }
            }
        };
        let message = match status.code {
            Code::Error => reasons,
            _ => format!("0/1 nodes are available: 1 {reasons}."),
        };
        self.handle_scheduling_failure(popped, rejectors, message, NominatingInfo::Clear, now)
    }

    /// Requeues a pod that fits no node.
    fn handle_fit_error(
        &mut self,
        popped: &PoppedPod,
        fit_error: &FitError,
        NoNodeReport { message, nominating_info }: NoNodeReport,
        now: Timestamp,
    ) -> SchedulingFailure {
        let rejectors = match fit_error.error_message() {
            Some(_) => Rejectors::default(),
            None => rejectors(fit_error),
        };
        self.handle_scheduling_failure(popped, rejectors, message, nominating_info, now)
    }

    /// Requeues the pod and updates its nomination.
    ///
    /// Upstream: `handleSchedulingFailure`.
    fn handle_scheduling_failure(
        &mut self,
        popped: &PoppedPod,
        rejectors: Rejectors,
        message: String,
        nominating_info: NominatingInfo,
        now: Timestamp,
    ) -> SchedulingFailure {
        let is_error = rejectors.is_empty();
        self.assumed.remove(&*popped.uid);
        self.queue.add_unschedulable_pod(&popped.uid, rejectors, now);
        let info = self.queue.get(&popped.uid).unwrap_or(&popped.info).clone();
        if self.queue.get(&popped.uid).is_some() {
            let current = &*info.pod.status.nominated_node_name;
            let node = nominating_info.node_name().unwrap_or(current);
            self.queue.nominator_mut().add_nominated_pod(&info, node);
        }
        SchedulingFailure { info, profile: popped.profile, message, is_error, nominating_info }
    }

    /// Runs the PostBind plugins and removes the bound pod from the queue.
    pub(crate) fn finish_binding(&mut self, assumed: &AssumedPod) {
        let AssumedPod { popped, node, .. } = assumed;
        self.waiting_pods.remove(&popped.uid);
        self.queue.remove(&popped.uid);
        for (_, plugin) in self.profiles[popped.profile].at(ExtensionPoint::PostBind) {
            let Some(post_bind) = plugin.as_post_bind() else { continue };
            let result = catch_plugin_panic(|| post_bind.post_bind(&popped.info, node));
            log_panic("PostBind", plugin, &popped.info, result);
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
        // A pod that is no longer assumed was deleted or bound. A bound pod is on its node in the cache, even if the
        // response to the binding was an error.
        let was_assumed = self.assumed.remove(&*popped.uid);
        let assumed_pod =
            if was_assumed { self.nodes.remove(&popped.uid).map(|(pod, _node)| pod) } else { None };
        let is_queued = self.queue.get(&popped.uid).is_some();
        match cause {
            BindingFailure::Rejected(rejection) => {
                // The pod is requeued before the event about its freed resources, because its own removal must not
                // requeue it.
                let failure = is_queued.then(|| self.handle_rejection(&popped, &rejection, now));
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
                let no_rejectors = Rejectors::default();
                let clear = NominatingInfo::Clear;
                is_queued.then(|| {
                    self.handle_scheduling_failure(&popped, no_rejectors, message, clear, now)
                })
            }
        }
    }
}

/// Message and change of the nomination to report for a pod that fits no node.
struct NoNodeReport {
    message: String,
    nominating_info: NominatingInfo,
}

/// Runs the PostFilter plugins until one succeeds.
///
/// Upstream: `RunPostFilterPlugins`.
async fn run_post_filter_plugins(
    cycle: &mut Cycle<'_>,
    state: &CycleState,
    fit_error: &FitError,
) -> NoNodeReport {
    let mut nominating_info = NominatingInfo::Clear;
    if let Some(message) = fit_error.message_without_post_filter() {
        return NoNodeReport { message: message.to_owned(), nominating_info };
    }
    let plugins: Vec<_> = cycle.profile().at(ExtensionPoint::PostFilter).collect();
    if plugins.is_empty() {
        return NoNodeReport { message: fit_error.to_string(), nominating_info };
    }
    nominating_info = NominatingInfo::Keep;
    let point_began = cycle.trace_mut().now();
    let mut messages = Vec::new();
    let mut succeeded = false;
    let status_of = |succeeded: bool| (!succeeded).then(|| Status::unschedulable(""));
    for (index, plugin) in plugins {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_post_filter()) else { continue };
        let began = cycle.trace_mut().now_if_sampled();
        cycle.record_changes();
        let call = async { plugin.post_filter(cycle, state, fit_error).await };
        let result = match catch_plugin_panic_async(call).await {
            // The plugin has restored the nodes that it changed.
            Ok(result) => result,
            Err(panic) => {
                cycle.undo_changes();
                let status =
                    Status::error(format!("running PostFilter plugin \"{name}\": {panic}"));
                let trace = cycle.trace_mut();
                trace.record_duration(ExtensionPoint::PostFilter, index, began, Some(&status));
                messages.extend(status.reasons.iter().map(ToString::to_string));
                break;
            }
        };
        succeeded = result.done;
        let status = status_of(succeeded);
        cycle.trace_mut().record_duration(
            ExtensionPoint::PostFilter,
            index,
            began,
            status.as_ref(),
        );
        if succeeded {
            // The result of a successful plugin replaces those of earlier plugins.
            messages.clear();
            nominating_info = NominatingInfo::Keep;
        }
        if !result.message.is_empty() {
            messages.push(result.message);
        }
        if result.nominating_info != NominatingInfo::Keep {
            nominating_info = result.nominating_info;
        }
        if succeeded {
            break;
        }
    }
    messages.extend(cycle.extension_panic_message());
    let status = status_of(succeeded);
    cycle.trace_mut().record_point(ExtensionPoint::PostFilter, point_began, status.as_ref());
    NoNodeReport { message: fit_error.message_with(&messages), nominating_info }
}

/// Runs the Reserve plugins until one fails.
///
/// Upstream: `RunReservePluginsReserve`.
fn run_reserve_plugins(
    profile: &Profile,
    state: &mut CycleState,
    pod: &PodInfo,
    node: &str,
    trace: &mut Trace,
) -> Result<(), PluginRejection> {
    for (index, plugin) in profile.at(ExtensionPoint::Reserve) {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_reserve()) else { continue };
        let began = trace.now_if_sampled();
        let reserved = catch_plugin_panic(|| plugin.reserve(state, pod, node)).unwrap_or_else(Err);
        trace.record_duration(ExtensionPoint::Reserve, index, began, reserved.as_ref().err());
        reserved.map_err(|status| PluginRejection::new(index, status, "Reserve", name))?;
    }
    Ok(())
}

/// Runs the Permit plugins until one rejects the pod. Returns those that delay the binding, with their timeouts.
///
/// Upstream: `RunPermitPlugins`.
fn run_permit_plugins(
    profile: &Profile,
    state: &CycleState,
    pod: &PodInfo,
    node: &str,
    trace: &mut Trace,
) -> Result<Vec<(&'static str, Duration)>, PluginRejection> {
    let mut pending_plugins = Vec::new();
    for (index, plugin) in profile.at(ExtensionPoint::Permit) {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_permit()) else { continue };
        let began = trace.now_if_sampled();
        let result = catch_plugin_panic(|| plugin.permit(state, pod, node));
        let result = result.unwrap_or_else(PermitResult::Reject);
        let status = match &result {
            PermitResult::Reject(status) => Some(status),
            PermitResult::Allow | PermitResult::Wait(_) => None,
        };
        trace.record_duration(ExtensionPoint::Permit, index, began, status);
        match result {
            PermitResult::Allow => {}
            PermitResult::Reject(status) => {
                return Err(PluginRejection::new(index, status, "Permit", name));
            }
            PermitResult::Wait(timeout) => {
                pending_plugins.push((name, timeout.min(MAX_PERMIT_TIMEOUT)));
            }
        }
    }
    Ok(pending_plugins)
}

/// Logs a panic of a plugin whose result does not affect the pod.
fn log_panic(point: &str, plugin: &dyn Plugin, pod: &PodInfo, result: StatusResult) {
    if let Err(status) = result {
        let plugin = plugin.name();
        let meta = &pod.pod.meta;
        let error = status.reasons.join(", ");
        tracing::error!(point, plugin, namespace = %meta.namespace, name = %meta.name, error, "Plugin panicked");
    }
}

/// Returns the plugins that rejected the pod.
fn rejectors(fit_error: &FitError) -> Rejectors {
    if fit_error.n_nodes == 0 {
        let unschedulable = [PluginSet::NO_NODES].into_iter().collect();
        return Rejectors { unschedulable, pending: PluginSet::default() };
    }
    let pending = fit_error.statuses().filter(|rejected| rejected.status.code == Code::Pending);
    Rejectors {
        unschedulable: fit_error.unschedulable_plugins().into_iter().collect(),
        pending: pending.map(|rejected| rejected.plugin).collect(),
    }
}
