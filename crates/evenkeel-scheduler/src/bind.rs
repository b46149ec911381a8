//! Binding cycle of an assumed pod: Permit, PreBind, Bind. It runs concurrently with scheduling attempts.
//!
//! Upstream: `bindingCycle` in `pkg/scheduler/schedule_one.go`.

use evenkeel_api::{View as _, views::Pod};
use evenkeel_runtime::{
    client::{Client, Metadata},
    clock::Clock,
    plan::PatchType,
};
use futures::future::try_join_all;
use std::sync::Arc;
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use crate::{
    core::{AssumedPod, BindingFailure},
    framework::{
        BindResult, Command, Extender, ExtensionPoint, PermitDecision, PluginRejection, PreBind,
        PreBindPreFlight, Profile, Status, WaitingPods, catch_plugin_panic,
        catch_plugin_panic_async,
    },
    metrics::Metrics,
    pod::PodInfo,
    status_patcher::Patched,
};

/// Label value of the extension point in upstream's metrics.
const PRE_BIND_PRE_FLIGHT: &str = "PreBindPreFlight";

/// Binding cycle of one pod, with the clients, plugins and extenders that it calls.
#[derive(Clone)]
pub(crate) struct BindingCycle {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) profiles: Arc<[Profile]>,
    /// Index of the pod's profile in `profiles`.
    pub(crate) profile: usize,
    pub(crate) extenders: Arc<[Arc<dyn Extender>]>,
    pub(crate) waiting_pods: WaitingPods,
    pub(crate) commands: UnboundedSender<Command>,
    pub(crate) metrics: Metrics,
    /// Feature gate `NominatedNodeNameForExpectation`.
    pub(crate) nominated_node_name_for_expectation: bool,
}

/// A finished binding cycle.
pub(crate) struct BindingResult {
    pub(crate) assumed: AssumedPod,
    /// When the scheduling attempt began.
    pub(crate) began: Instant,
    pub(crate) result: Result<(), BindingFailure>,
    /// Whether the binding cycle set `status.nominatedNodeName`.
    pub(crate) has_nomination: bool,
}

/// A PreBind plugin that has work to do for the pod.
struct PreBindTask<'a> {
    name: &'static str,
    plugin: &'a dyn PreBind,
    parallel: bool,
}

impl BindingCycle {
    /// Waits for the pod's pending status patch, then runs the binding cycle.
    pub(crate) async fn bind(
        self,
        assumed: AssumedPod,
        pending_patch: Option<Patched>,
        began: Instant,
    ) -> BindingResult {
        if let Some(patched) = pending_patch {
            // A status patch that arrived after the binding would set `PodScheduled=False` on a bound pod.
            patched.cancelled().await;
        }
        let pre_flight_began = self.clock.instant();
        let pre_bind_tasks = match self.pre_bind_tasks(&assumed) {
            Ok(tasks) => tasks,
            Err(message) => {
                self.metrics.observe_extension_point(
                    PRE_BIND_PRE_FLIGHT,
                    "Error",
                    self.profile().name(),
                    pre_flight_began.elapsed(),
                );
                let result = Err(BindingFailure::Failed(message));
                return BindingResult { assumed, began, result, has_nomination: false };
            }
        };
        let status = if pre_bind_tasks.is_empty() { "Skip" } else { "Success" };
        self.metrics.observe_extension_point(
            PRE_BIND_PRE_FLIGHT,
            status,
            self.profile().name(),
            pre_flight_began.elapsed(),
        );
        let mut has_nomination = false;
        if self.nominated_node_name_for_expectation
            && (!pre_bind_tasks.is_empty() || assumed.waiting.is_some())
        {
            // The nomination shows cluster autoscalers that the pod will use the node.
            has_nomination = self.nominate_expected_node(&assumed).await;
        }
        let result = self.permit_and_bind(&assumed, &pre_bind_tasks).await;
        BindingResult { assumed, began, result, has_nomination }
    }

    fn profile(&self) -> &Profile {
        &self.profiles[self.profile]
    }

    /// Returns the PreBind plugins that have work to do for the pod.
    ///
    /// # Errors
    ///
    /// Returns the message to report if a plugin panics.
    fn pre_bind_tasks(&self, assumed: &AssumedPod) -> Result<Vec<PreBindTask<'_>>, String> {
        let mut pre_bind_tasks = Vec::new();
        for (_, plugin) in self.profile().at(ExtensionPoint::PreBind) {
            let (name, Some(plugin)) = (plugin.name(), plugin.as_pre_bind()) else { continue };
            let began = assumed.is_sampled.then(|| self.clock.instant());
            let info = &assumed.popped.info;
            let node = &*assumed.node;
            let result = catch_plugin_panic(|| plugin.pre_bind_pre_flight(info, node));
            let pre_flight = result.map_err(|panic| {
                let reasons = panic.reasons.join(", ");
                format!("running PreBindPreFlight plugin \"{name}\": {reasons}")
            })?;
            let status = if pre_flight == PreBindPreFlight::Skip { "Skip" } else { "Success" };
            self.observe_plugin(name, PRE_BIND_PRE_FLIGHT, began, status);
            match pre_flight {
                PreBindPreFlight::Skip => {}
                PreBindPreFlight::Act { parallel } => {
                    pre_bind_tasks.push(PreBindTask { name, plugin, parallel });
                }
            }
        }
        Ok(pre_bind_tasks)
    }

    /// Sets `status.nominatedNodeName` to the assumed node. Returns whether the API server now has the nomination.
    async fn nominate_expected_node(&self, assumed: &AssumedPod) -> bool {
        let pod = &assumed.popped.info.pod;
        let node = &*assumed.node;
        if *pod.status.nominated_node_name == *node {
            return true;
        }
        let patch = serde_json::json!({
            "metadata": { "uid": pod.meta.uid },
            "status": { "nominatedNodeName": node },
        });
        let kind = Pod::kind();
        let meta = &pod.meta;
        let body = patch.to_string().into();
        let form = PatchType::Strategic;
        let written = self
            .client
            .patch::<Metadata>(&kind, &meta.namespace, &meta.name, "status", form, body)
            .await;
        if let Err(error) = &written {
            // The binding does not depend on the nomination.
            tracing::debug!(namespace = %meta.namespace, name = %meta.name, %error, "Nomination not written");
        }
        written.is_ok()
    }

    /// Waits until Permit allows the pod, then runs the PreBind plugins and binds the pod.
    async fn permit_and_bind(
        &self,
        assumed: &AssumedPod,
        pre_bind_tasks: &[PreBindTask<'_>],
    ) -> Result<(), BindingFailure> {
        let info = &assumed.popped.info;
        let node = &*assumed.node;
        self.wait_on_permit(assumed).await?;
        let began = self.clock.instant();
        let pre_bound = match pre_bind_tasks {
            [] => Ok(()),
            pre_bind_tasks => {
                self.run_pre_bind_plugins(info, node, pre_bind_tasks, assumed.is_sampled).await
            }
        };
        self.observe_extension_point(ExtensionPoint::PreBind, began, pre_bound.is_ok());
        pre_bound.map_err(BindingFailure::Failed)?;
        let began = self.clock.instant();
        let bound = self.bind_pod(info, node, assumed.is_sampled).await;
        self.observe_extension_point(ExtensionPoint::Bind, began, bound.is_ok());
        bound.map_err(BindingFailure::Failed)
    }

    /// Records the duration and the result of an extension point.
    fn observe_extension_point(&self, point: ExtensionPoint, began: Instant, succeeded: bool) {
        let name = self.profile().name();
        let status = status_label(succeeded);
        self.metrics.observe_extension_point(point.as_str(), status, name, began.elapsed());
    }

    /// Records the duration of a plugin call if the attempt was sampled.
    fn observe_plugin(&self, plugin: &str, point: &str, began: Option<Instant>, status: &str) {
        if let Some(began) = began {
            self.metrics.observe_plugin(plugin, point, status, began.elapsed());
        }
    }

    /// Waits until the Permit plugins allow the pod.
    ///
    /// # Errors
    /// Fails if a plugin rejects the pod.
    async fn wait_on_permit(&self, assumed: &AssumedPod) -> Result<(), BindingFailure> {
        let Some(waiting) = &assumed.waiting else { return Ok(()) };
        let began = self.clock.instant();
        let decision = waiting.wait_on_permit(&self.clock).await;
        self.waiting_pods.remove(&assumed.popped.uid);
        let (status, result) = match decision {
            PermitDecision::Allowed => {
                // The queue need not keep in-flight events for the pod any longer. The send only fails after the
                // scheduler has stopped.
                drop(self.commands.send(Command::Done(Arc::clone(&assumed.popped.uid))));
                ("Success", Ok(()))
            }
            PermitDecision::Rejected { plugin: name, message } => {
                let mut plugins = self.profile().plugins();
                let rejector = plugins.find(|(_, plugin)| plugin.name() == name);
                // A deleted pod has no rejector. It is not requeued, so the index does not matter.
                let plugin = rejector.map_or(0, |(index, _)| index);
                let rejection = PluginRejection { plugin, status: Status::unschedulable(message) };
                ("Unschedulable", Err(BindingFailure::Rejected(rejection)))
            }
            PermitDecision::Preempted(reason) => {
                let message = format!("waiting on permit for pod: {reason}");
                ("Error", Err(BindingFailure::Failed(message)))
            }
        };
        self.metrics.observe_permit_wait(status, began.elapsed());
        result
    }

    /// Runs the PreBind plugins until one fails or the pod is preempted. Adjacent plugins that allow parallel calls run
    /// concurrently.
    ///
    /// Upstream: `RunPreBindPlugins`.
    async fn run_pre_bind_plugins(
        &self,
        info: &PodInfo,
        node: &str,
        pre_bind_tasks: &[PreBindTask<'_>],
        is_sampled: bool,
    ) -> Result<(), String> {
        let pod_in_pre_bind = self.waiting_pods.start_pre_bind(info.uid());
        let run_all = async {
            for group in pre_bind_tasks.chunk_by(|task, next| task.parallel && next.parallel) {
                let runs = group.iter().map(|task| self.run_pre_bind(info, node, task, is_sampled));
                try_join_all(runs).await?;
            }
            Ok::<(), String>(())
        };
        // `None` means that a preemption cancelled the plugins. `mark_prebound` then returns the reason.
        let completed = pod_in_pre_bind.cancelled.run_until_cancelled(run_all).await;
        let prebound = pod_in_pre_bind.mark_prebound();
        self.waiting_pods.remove(info.uid());
        completed.unwrap_or(Ok(())).and(prebound)
    }

    /// Runs one PreBind plugin and records its duration.
    async fn run_pre_bind(
        &self,
        info: &PodInfo,
        node: &str,
        task: &PreBindTask<'_>,
        is_sampled: bool,
    ) -> Result<(), String> {
        let began = is_sampled.then(|| self.clock.instant());
        let call = async { task.plugin.pre_bind(&self.client, info, node).await };
        let result = catch_plugin_panic_async(call).await;
        let result = result.and_then(|result| result.map_err(|error| error.to_string()));
        let point = ExtensionPoint::PreBind.as_str();
        let status = status_label(result.is_ok());
        self.observe_plugin(task.name, point, began, status);
        result.map_err(|error| format!("running PreBind plugin \"{}\": {error}", task.name))
    }

    /// Binds the pod with the first extender or Bind plugin that does not skip it.
    ///
    /// Upstream: `Scheduler.bind`.
    async fn bind_pod(&self, info: &PodInfo, node: &str, is_sampled: bool) -> Result<(), String> {
        for extender in self.extenders.iter().filter(|extender| extender.is_binder()) {
            if !extender.is_interested(info) {
                continue;
            }
            match extender.bind(info, node).await {
                Err(error) if extender.is_ignorable() => {
                    tracing::info!(extender = extender.name(), %error, "Extender left out");
                }
                result => return result.map_err(|error| error.to_string()),
            }
        }
        for (_, plugin) in self.profile().at(ExtensionPoint::Bind) {
            let (name, Some(plugin)) = (plugin.name(), plugin.as_bind()) else { continue };
            let began = is_sampled.then(|| self.clock.instant());
            let call = async { plugin.bind(&self.client, info, node).await };
            let result = catch_plugin_panic_async(call).await;
            let result = result.and_then(|result| result.map_err(|error| error.to_string()));
            let status = match &result {
                Ok(BindResult::Bound) => "Success",
                Ok(BindResult::Skip) => "Skip",
                Err(_) => "Error",
            };
            self.observe_plugin(name, ExtensionPoint::Bind.as_str(), began, status);
            match result {
                Ok(BindResult::Bound) => return Ok(()),
                Ok(BindResult::Skip) => {}
                Err(error) => return Err(format!("running Bind plugin \"{name}\": {error}")),
            }
        }
        Err("no plugin binds pods".to_owned())
    }
}

/// Returns the `status` label of upstream's metrics.
fn status_label(succeeded: bool) -> &'static str {
    if succeeded { "Success" } else { "Error" }
}
