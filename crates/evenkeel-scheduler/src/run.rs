//! Scheduling loop: handles cache events, makes one attempt at a time, and runs binding cycles concurrently.

use evenkeel_api::{
    View as _,
    time::Timestamp,
    views::{Namespace, Node, Pod},
};
use evenkeel_runtime::{
    cache::{CacheEvent, Caches},
    client::{Client, Metadata},
    clock::Clock,
    events::SeriesEventRecorder,
    plan::{EventRecord, PatchType, Target},
    tasks::{Supervisor, Tasks},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use prometheus::Registry;
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    SchedulerOptions,
    bind::{BindingCycle, BindingResult},
    condition::{self, FailureStatus},
    core::{AssumedPod, AttemptOutcome, AttemptResult, BindingFailure, Core, SchedulingFailure},
    framework::{Command, ExtensionPoint, Handle, ObjectChange, Profile, Watches},
    metrics::{Metrics, ResultLabel},
    pod::PodInfo,
    queue::PluginPanic,
    schedule::View,
    status_patcher::StatusPatcher,
    stopwatch::Stopwatch,
};

/// Number of consecutive attempts after which the gauges are updated. They are also updated when no pod is due.
const ATTEMPTS_PER_METRICS_UPDATE: u32 = 128;

/// Schedules pods until `shutdown` is cancelled, then drops unfinished binding cycles. The next run continues with the
/// state in the API server. The caller must start the caches.
pub fn run(
    client: Client,
    caches: Caches,
    clock: Clock,
    registry: Registry,
    options: SchedulerOptions,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let supervisor = Supervisor::current();
        StandbyScheduler::new(client, caches, clock, &registry, &options, &supervisor)
            .run(shutdown)
            .await;
    })
}

/// A scheduler that handles events, but does not make attempts before it becomes the leader.
pub struct StandbyScheduler {
    scheduler: Scheduler,
    events: Events,
    caches: Caches,
    watches: Arc<Watches>,
    tasks: Tasks,
    stop: CancellationToken,
}

impl StandbyScheduler {
    /// Creates the caches and connects the plugins. `supervisor` reports failed tasks of the scheduler.
    pub fn new(
        client: Client,
        caches: Caches,
        clock: Clock,
        registry: &Registry,
        options: &SchedulerOptions,
        supervisor: &Supervisor,
    ) -> Self {
        let (watches, objects) = Watches::new();
        let (commands, command_receiver) = mpsc::unbounded_channel();
        let events = subscribe(&caches, objects, command_receiver);
        let watches = Arc::new(watches);
        let tasks = Tasks::of(supervisor);
        let stop = tasks.token();
        let mut core = Core::new(options);
        let metrics = Metrics::register(registry);
        core.start_measuring(Stopwatch::start(&clock), metrics.clone());
        let mut recorders = Vec::new();
        // Events have their own client, so that they do not use up the rate limit of bindings.
        let event_client = client.with_user_agent("events");
        for profile in &options.profiles {
            let client = client.clone();
            let instance = options.reporting_instance(profile);
            let recorder = SeriesEventRecorder::new(
                event_client.clone(),
                profile.name(),
                &instance,
                clock.clone(),
            );
            profile.connect(&Handle {
                profile: profile.name().into(),
                caches: caches.clone(),
                clock: clock.clone(),
                client,
                tasks: tasks.clone(),
                recorder: recorder.clone(),
                registry: registry.clone(),
                watches: Arc::clone(&watches),
                waiting_pods: core.waiting_pods().clone(),
                commands: commands.clone(),
                metrics: metrics.clone(),
                parallelism: options.parallelism.max(1),
            });
            recorders.push(recorder);
        }
        watches.start_deferred_subscriptions();
        let scheduler = Scheduler {
            core,
            metrics,
            max_bindings: options.max_bindings.max(1),
            nominated_node_name_for_expectation: options.nominated_node_name_for_expectation,
            attempts_since_metrics_update: 0,
            client,
            clock,
            recorders,
            commands,
            bindings: FuturesUnordered::new(),
            status_patcher: StatusPatcher::default(),
        };
        Self { scheduler, events, caches, watches, tasks, stop }
    }

    /// Handles events until this scheduler becomes the leader. The elector then cancels `elected`.
    pub fn stand_by(mut self, elected: &CancellationToken) -> BoxFuture<'_, Self> {
        Box::pin(async move {
            while let Some(Some(event)) = elected.run_until_cancelled(self.events.next()).await {
                self.scheduler.handle_event(event);
            }
            self
        })
    }

    /// Handles all events that have arrived.
    pub(crate) fn catch_up(&mut self) {
        while let Some(event) = self.events.try_next() {
            self.scheduler.handle_event(event);
        }
    }

    /// Adds or updates a pod, for dry runs.
    pub(crate) fn add_pod(&mut self, pod: &Arc<Pod>) {
        self.scheduler.core.add_or_update_pod(pod, self.scheduler.clock.now());
        self.scheduler.record_plugin_calls();
    }

    /// Deletes a pod, for dry runs.
    pub(crate) fn delete_pod(&mut self, uid: &str) {
        self.scheduler.core.delete_pod(uid, self.scheduler.clock.now());
        self.scheduler.record_plugin_calls();
    }

    /// Returns the pod's profile and the view of the cluster that an attempt would use.
    pub(crate) fn view_for(&mut self, pod: &Pod) -> Option<(Profile, View<'_>)> {
        self.scheduler.core.view_for(pod)
    }

    /// Schedules pods until `shutdown` is cancelled.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until_shutdown(shutdown))
    }

    /// Runs the scheduling loop until `shutdown` is cancelled, then waits for the background tasks.
    async fn run_until_shutdown(self, shutdown: CancellationToken) {
        let Self { scheduler, mut events, caches, watches, tasks, stop } = self;
        // The background tasks end with the scheduler, even if this future is dropped.
        let stop = stop.drop_guard();
        scheduler.recorders.iter().for_each(|recorder| recorder.start(&tasks));
        let work = async {
            caches.of::<Node>().synced().await;
            caches.of::<Pod>().synced().await;
            caches.of::<Namespace>().synced().await;
            for synced in watches.take_syncs() {
                synced.await;
            }
            scheduler.run_loop(&mut events).await;
        };
        shutdown.run_until_cancelled(work).await;
        drop(stop);
        tasks.join().await;
    }
}

/// An input of the scheduling loop.
enum Event {
    Node(CacheEvent<Node>),
    Pod(CacheEvent<Pod>),
    Namespace(CacheEvent<Namespace>),
    Object(ObjectChange),
    Command(Command),
}

/// Receivers of the loop's inputs. Each receiver keeps the order of its events.
struct Events {
    /// Events of nodes, pods and namespaces.
    nodes_and_pods: mpsc::UnboundedReceiver<Event>,
    /// Changes of other objects that plugins watch.
    objects: mpsc::UnboundedReceiver<ObjectChange>,
    /// Commands of plugins and binding cycles.
    commands: mpsc::UnboundedReceiver<Command>,
}

impl Events {
    /// Returns the next event if one has arrived.
    fn try_next(&mut self) -> Option<Event> {
        let node_or_pod = self.nodes_and_pods.try_recv();
        node_or_pod
            .or_else(|_| self.objects.try_recv().map(Event::Object))
            .or_else(|_| self.commands.try_recv().map(Event::Command))
            .ok()
    }

    /// Waits for the next event. Returns `None` after the last one.
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            // A fixed order of the branches makes runs reproducible.
            biased;
            event = self.nodes_and_pods.recv() => event,
            Some(object) = self.objects.recv() => Some(Event::Object(object)),
            Some(command) = self.commands.recv() => Some(Event::Command(command)),
        }
    }
}

/// Subscribes to nodes, pods and namespaces.
fn subscribe(
    caches: &Caches,
    objects: mpsc::UnboundedReceiver<ObjectChange>,
    commands: mpsc::UnboundedReceiver<Command>,
) -> Events {
    let (sender, nodes_and_pods) = mpsc::unbounded_channel();
    let nodes = sender.clone();
    let namespaces = sender.clone();
    // The send only fails after the scheduler has stopped.
    caches.of::<Node>().subscribe(move |event| drop(nodes.send(Event::Node(event.clone()))));
    caches
        .of::<Namespace>()
        .subscribe(move |event| drop(namespaces.send(Event::Namespace(event.clone()))));
    caches.of::<Pod>().subscribe(move |event| drop(sender.send(Event::Pod(event.clone()))));
    Events { nodes_and_pods, objects, commands }
}

/// State of the scheduling loop.
struct Scheduler {
    core: Core,
    client: Client,
    clock: Clock,
    /// One event recorder for each profile.
    recorders: Vec<SeriesEventRecorder>,
    commands: mpsc::UnboundedSender<Command>,
    metrics: Metrics,
    /// Maximum number of concurrent binding cycles, except those of pods in Permit or PreBind.
    max_bindings: usize,
    /// Feature gate `NominatedNodeNameForExpectation`.
    nominated_node_name_for_expectation: bool,
    attempts_since_metrics_update: u32,
    /// Running binding cycles.
    bindings: FuturesUnordered<BoxFuture<'static, BindingResult>>,
    status_patcher: StatusPatcher,
}

impl Scheduler {
    /// Makes attempts and handles events until no further input can arrive.
    async fn run_loop(mut self, events: &mut Events) {
        loop {
            while let Some(event) = events.try_next() {
                self.handle_event(event);
            }
            while let Some(Some(binding)) = self.bindings.next().now_or_never() {
                self.handle_binding_result(binding);
            }
            while let Some(Some(())) = self.status_patcher.next_finished().now_or_never() {}
            if self.attempts_since_metrics_update >= ATTEMPTS_PER_METRICS_UPDATE {
                self.update_gauges();
            }
            if self.may_start_binding() && self.schedule_next_pod().await {
                // Binding cycles can progress before the next attempt.
                tokio::task::yield_now().await;
                continue;
            }
            self.update_gauges();
            if !self.wait_for_input(events).await {
                return;
            }
        }
    }

    /// Updates the gauges of pending pods, the cache and goroutines.
    fn update_gauges(&mut self) {
        self.attempts_since_metrics_update = 0;
        self.metrics.update_gauges(&mut self.core, self.bindings.len());
    }

    /// Returns whether another binding cycle may start. The limit ignores pods in Permit or PreBind, because they may
    /// wait for minutes or for other pods.
    fn may_start_binding(&self) -> bool {
        self.bindings.len() < self.max_bindings + self.core.waiting_pods().len()
    }

    /// Waits for the next input or due time. Returns `false` if no further input can arrive.
    async fn wait_for_input(&mut self, events: &mut Events) -> bool {
        let now = self.clock.now();
        let time_to_next_due = self.core.next_due().map(|next_due| {
            Duration::try_from(next_due.duration_since(now)).unwrap_or(Duration::ZERO)
        });
        let is_full = !self.may_start_binding();
        let waiting_pods = self.core.waiting_pods().clone();
        tokio::select! {
            // A fixed order of the branches makes runs reproducible. `run_loop` drains every source, so none starves.
            biased;
            event = events.next() => match event {
                Some(event) => self.handle_event(event),
                None => return false,
            },
            Some(binding) = self.bindings.next(), if !self.bindings.is_empty() => self.handle_binding_result(binding),
            () = waiting_pods.pre_bind_started(), if is_full => {}
            Some(()) = self.status_patcher.next_finished(), if !self.status_patcher.is_empty() => {}
            () = self.clock.sleep(time_to_next_due.unwrap_or_default()), if time_to_next_due.is_some() => {}
        }
        true
    }

    /// Handles an event, and records its duration and the plugin calls that it caused.
    fn handle_event(&mut self, event: Event) {
        // Drop the events that attempts and bindings caused, because the duration below does not measure their
        // handling.
        self.core.take_handled_events();
        let began_at = self.clock.instant();
        self.dispatch_event(event);
        let took = began_at.elapsed();
        self.record_plugin_calls();
        for (resource, action) in self.core.take_handled_events() {
            self.metrics
                .observe_event_handling(&format!("{}{}", resource.as_str(), action.as_str()), took);
        }
    }

    /// Takes the queue's plugin calls and panics, and records them in metrics, logs and events.
    fn record_plugin_calls(&mut self) {
        let calls = self.core.queue_mut().take_plugin_calls();
        self.metrics.observe_queue_calls(&calls, self.core.profiles());
        for panic in self.core.queue_mut().take_plugin_panics() {
            let PluginPanic { profile, pod, message } = panic;
            let meta = &pod.pod.meta;
            tracing::error!(namespace = %meta.namespace, name = %meta.name, error = message, "Plugin panicked");
            // The action differs from the action of failed attempts. Otherwise, this event would join their series and
            // lose its message.
            self.record_failed_scheduling(profile, &pod, &message, "Queueing");
        }
    }

    /// Records the event `FailedScheduling`.
    fn record_failed_scheduling(
        &self,
        profile: usize,
        info: &PodInfo,
        message: &str,
        action: &'static str,
    ) {
        let event = EventRecord {
            regarding: event_target(info),
            warning: true,
            reason: "FailedScheduling".into(),
            message: condition::truncate_message(message),
        };
        self.recorders[profile].record(&event, action, None);
    }

    /// Passes an event of a cache to the core.
    fn dispatch_event(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Node(CacheEvent::Deleted(node)) => self.core.delete_node(&node, now),
            Event::Node(event) => self.core.add_or_update_node(event.object(), now),
            Event::Pod(CacheEvent::Deleted(pod)) => self.core.delete_pod(&pod.meta.uid, now),
            Event::Pod(CacheEvent::Updated { old, new }) => {
                // A different uid means that the watch missed the deletion of the old pod.
                if old.meta.uid != new.meta.uid {
                    self.core.delete_pod(&old.meta.uid, now);
                }
                self.core.add_or_update_pod(&new, now);
            }
            Event::Pod(event) => self.core.add_or_update_pod(event.object(), now),
            Event::Namespace(event) => self.core.update_namespace(&event),
            Event::Object(object) => self.core.handle_object_change(object, now),
            Event::Command(Command::Activate(uid)) => self.core.queue_mut().activate(&uid, now),
            Event::Command(Command::Done(uid)) => self.core.queue_mut().done(&uid),
        }
    }

    /// Makes one attempt. Returns whether a pod was due.
    async fn schedule_next_pod(&mut self) -> bool {
        let began = self.clock.instant();
        let now = self.clock.now();
        let Some(AttemptOutcome { result, trace, profile }) = self.core.schedule_one(now).await
        else {
            return false;
        };
        self.attempts_since_metrics_update += 1;
        self.record_plugin_calls();
        self.metrics.observe_algorithm(began.elapsed());
        self.metrics.observe_trace(&trace, self.core.profile(profile));
        match result {
            AttemptResult::Bind(assumed) => {
                let binding_cycle = self.binding_cycle(profile);
                let pending_patch = self.status_patcher.pending_patch(&assumed.popped.uid);
                self.bindings.push(Box::pin(binding_cycle.bind(assumed, pending_patch, began)));
            }
            AttemptResult::Failed(failure) => {
                // Only a binding cycle sets a nomination.
                let has_nomination = false;
                self.handle_failure(&failure, has_nomination, began, now);
            }
            AttemptResult::Deleting(info) => self.record_deleting_event(&info, profile),
            AttemptResult::AlreadyAssumed => {}
        }
        true
    }

    /// Returns the dependencies of a binding cycle of this profile.
    fn binding_cycle(&self, profile: usize) -> BindingCycle {
        BindingCycle {
            client: self.client.clone(),
            clock: self.clock.clone(),
            profiles: Arc::clone(self.core.profiles()),
            profile,
            extenders: Arc::clone(self.core.extenders()),
            waiting_pods: self.core.waiting_pods().clone(),
            commands: self.commands.clone(),
            metrics: self.metrics.clone(),
            nominated_node_name_for_expectation: self.nominated_node_name_for_expectation,
        }
    }

    /// Records the result of a binding cycle, and requeues the pod if it was not bound.
    fn handle_binding_result(&mut self, binding: BindingResult) {
        let BindingResult { assumed, began, result, has_nomination } = binding;
        let now = self.clock.now();
        match result {
            Ok(()) => {
                let name = self.core.profile(assumed.popped.profile).name();
                self.metrics.observe_attempt(ResultLabel::Scheduled, name, began.elapsed());
                let waited = now.duration_since(assumed.popped.initial_attempt).unsigned_abs();
                self.metrics.observe_scheduled_pod(&assumed.popped, waited);
                self.record_scheduled_event(&assumed);
                let post_bind_began_at = self.clock.instant();
                self.core.finish_binding(&assumed);
                let name = self.core.profile(assumed.popped.profile).name();
                self.metrics.observe_extension_point(
                    ExtensionPoint::PostBind.as_str(),
                    "Success",
                    name,
                    post_bind_began_at.elapsed(),
                );
            }
            Err(cause) => {
                if let BindingFailure::Failed(error) = &cause {
                    let meta = &assumed.popped.info.pod.meta;
                    tracing::warn!(namespace = %meta.namespace, name = %meta.name, %error, "Pod not bound");
                }
                let failure = self.core.handle_binding_cycle_error(assumed, cause, now);
                self.record_plugin_calls();
                if let Some(failure) = failure {
                    self.handle_failure(&failure, has_nomination, began, now);
                }
            }
        }
    }

    /// Records a failed attempt in metrics, logs, the pod's status and an event.
    fn handle_failure(
        &mut self,
        failure: &SchedulingFailure,
        has_nomination: bool,
        began: Instant,
        now: Timestamp,
    ) {
        let result = if failure.is_error { ResultLabel::Error } else { ResultLabel::Unschedulable };
        let name = self.core.profile(failure.profile).name();
        self.metrics.observe_attempt(result, name, began.elapsed());
        if failure.is_error {
            let meta = &failure.info.pod.meta;
            let error = &failure.message;
            tracing::error!(namespace = %meta.namespace, name = %meta.name, error, "Error scheduling pod; retrying");
        }
        self.publish_failure(failure, has_nomination, now);
    }

    /// Records the event `Scheduled`.
    fn record_scheduled_event(&self, assumed: &AssumedPod) {
        let meta = &assumed.popped.info.pod.meta;
        let event = EventRecord {
            regarding: event_target(&assumed.popped.info),
            warning: false,
            reason: "Scheduled".into(),
            message: format!(
                "Successfully assigned {}/{} to {}",
                meta.namespace, meta.name, assumed.node
            ),
        };
        // A pod is bound only once, so this event needs no series.
        self.recorders[assumed.popped.profile].record_once(&event, "Binding", None);
    }

    /// Records that a pod was not scheduled because it is being deleted.
    fn record_deleting_event(&self, info: &PodInfo, profile: usize) {
        let meta = &info.pod.meta;
        let message = format!("skip schedule deleting pod: {}/{}", meta.namespace, meta.name);
        self.record_failed_scheduling(profile, info, &message, "Scheduling");
    }

    /// Records the event `FailedScheduling`, and patches the pod's condition and nominated node if they changed.
    ///
    /// Upstream: `handleSchedulingFailure`.
    fn publish_failure(
        &mut self,
        failure: &SchedulingFailure,
        has_nomination: bool,
        now: Timestamp,
    ) {
        let SchedulingFailure { info, message, is_error, nominating_info, profile } = failure;
        self.record_failed_scheduling(*profile, info, message, "Scheduling");
        let reason = if *is_error { "SchedulerError" } else { "Unschedulable" };
        let failure_status = FailureStatus { reason, message, nominating_info, has_nomination };
        let Some(patch) = condition::patch(&info.pod, &failure_status, now) else {
            return;
        };
        let client = self.client.clone();
        let pod = Arc::clone(&info.pod);
        self.status_patcher.send(info.uid(), async move {
            let kind = Pod::kind();
            let meta = &pod.meta;
            let form = PatchType::Strategic;
            let body = patch.into();
            let patched = client
                .patch::<Metadata>(&kind, &meta.namespace, &meta.name, "status", form, body)
                .await;
            if let Err(error) = patched {
                tracing::debug!(namespace = %meta.namespace, name = %meta.name, %error, "Condition not written");
            }
        });
    }
}

/// Returns the pod as the object of an event.
fn event_target(info: &PodInfo) -> Target {
    let meta = &info.pod.meta;
    Target {
        kind: Pod::kind(),
        namespace: Arc::from(&*meta.namespace),
        name: Arc::from(&*meta.name),
        uid: Arc::from(&*meta.uid),
    }
}

#[cfg(test)]
mod tests;
