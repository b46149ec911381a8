//! The shell: one loop that takes changes in, tries pods one after the other, and has bindings on their way meanwhile.

use evenkeel_api::{
    View as _,
    time::Timestamp,
    views::{Namespace, Node, Pod},
};
use evenkeel_runtime::{
    cache::{CacheEvent, Caches},
    client::{Client, Metadata},
    clock::Clock,
    events::SeriesRecorder,
    plan::{Note, PatchForm, Target},
    tasks::Tasks,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use prometheus::Registry;
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    SchedulerOptions,
    bind::{Answer, Binder},
    condition::{self, Told},
    core::{Assigned, Attempted, Core, Failure, NotBound, Step},
    framework::{Command, Handle, ObjectChange, Point, Profile, Watches},
    metrics::{Metrics, Outcome},
    pod::PodInfo,
    schedule::View,
    telling::Telling,
};

/// While attempts follow each other, metrics of how much waits are brought up to date after so many.
const SHOWN_EVERY: u32 = 128;

/// Schedules pods until `shutdown` is cancelled; bindings that are on their way then are abandoned, and taken up by the next run
/// as the API server has them. The caches are started by their owner, before or after.
pub async fn run(
    client: Client,
    caches: Caches,
    clock: Clock,
    registry: Registry,
    options: SchedulerOptions,
    shutdown: CancellationToken,
) {
    Prepared::new(client, caches, clock, &registry, &options).run(shutdown).await;
}

/// A scheduler that is told of everything, and does nothing yet.
pub(crate) struct Prepared {
    scheduler: Scheduler,
    events: Events,
    caches: Caches,
    watches: Arc<Watches>,
    tasks: Tasks,
    stop: CancellationToken,
}

impl Prepared {
    /// Asks for the caches that are looked at, and tells the plugins of theirs.
    pub(crate) fn new(
        client: Client,
        caches: Caches,
        clock: Clock,
        registry: &Registry,
        options: &SchedulerOptions,
    ) -> Self {
        let (watches, objects) = Watches::new();
        let (commands, asked) = mpsc::unbounded_channel();
        let events = listen(&caches, objects, asked);
        let watches = Arc::new(watches);
        let stop = CancellationToken::new();
        let tasks = Tasks::under(stop.clone());
        let mut core = Core::new(options);
        let metrics = Metrics::register(registry);
        core.queue_mut().measure(metrics.clone());
        let mut recorders = Vec::new();
        // Events do not take away from what bindings may use.
        let telling = client.with_user_agent("events");
        for profile in &options.profiles {
            let (client, instance) = (client.clone(), &options.instance);
            let recorder =
                SeriesRecorder::new(telling.clone(), profile.name(), instance, clock.clone());
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
        watches.open();
        let scheduler = Scheduler {
            core,
            metrics,
            max_bindings: options.max_bindings.max(1),
            nominated_node_name_for_expectation: options.nominated_node_name_for_expectation,
            attempts: 0,
            client,
            clock,
            recorders,
            commands,
            bindings: FuturesUnordered::new(),
            telling: Telling::default(),
        };
        Self { scheduler, events, caches, watches, tasks, stop }
    }

    /// Takes in what changes until it is this scheduler's turn.
    pub(crate) async fn stand_by(mut self, turn: &CancellationToken) -> Self {
        while let Some(Some(event)) = turn.run_until_cancelled(self.events.next()).await {
            self.scheduler.apply(event);
        }
        self
    }

    /// Takes in what has changed until now.
    pub(crate) fn catch_up(&mut self) {
        while let Some(event) = self.events.at_hand() {
            self.scheduler.apply(event);
        }
    }

    /// Looks at the nodes as if a pod were there.
    pub(crate) fn see(&mut self, pod: &Arc<Pod>) {
        self.scheduler.core.pod_seen(pod, self.scheduler.clock.now());
    }

    /// Looks at the nodes as if a pod were not there.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.scheduler.core.pod_gone(uid, self.scheduler.clock.now());
    }

    /// The profile that a pod is for, and the nodes.
    pub(crate) fn sight(&mut self, pod: &Pod) -> Option<(Profile, View<'_>)> {
        self.scheduler.core.sight(pod)
    }

    /// Schedules pods until `shutdown` is cancelled.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self { scheduler, mut events, caches, watches, tasks, stop } = self;
        // What was begun beside the attempts ends with them, also when this is dropped midway.
        let stop = stop.drop_guard();
        scheduler.recorders.iter().for_each(|recorder| recorder.start(&tasks));
        let work = async {
            caches.of::<Node>().synced().await;
            caches.of::<Pod>().synced().await;
            caches.of::<Namespace>().synced().await;
            for synced in watches.syncs() {
                synced.await;
            }
            scheduler.work(&mut events).await;
        };
        shutdown.run_until_cancelled(work).await;
        drop(stop);
        tasks.join().await;
    }
}

/// A change in a cache.
enum Event {
    Node(CacheEvent<Node>),
    Pod(CacheEvent<Pod>),
    Namespace(CacheEvent<Namespace>),
    Object(ObjectChange),
    Command(Command),
}

/// What changes. Pods and nodes in their order, other objects in theirs.
struct Events {
    nodes_and_pods: mpsc::UnboundedReceiver<Event>,
    objects: mpsc::UnboundedReceiver<ObjectChange>,
    commands: mpsc::UnboundedReceiver<Command>,
}

impl Events {
    /// The next change, if there is one already.
    fn at_hand(&mut self) -> Option<Event> {
        let first = self.nodes_and_pods.try_recv();
        first
            .or_else(|_| self.objects.try_recv().map(Event::Object))
            .or_else(|_| self.commands.try_recv().map(Event::Command))
            .ok()
    }

    /// The next change; `None` when there never will be one.
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            // In order, so that a run can be repeated.
            biased;
            event = self.nodes_and_pods.recv() => event,
            Some(object) = self.objects.recv() => Some(Event::Object(object)),
            Some(command) = self.commands.recv() => Some(Event::Command(command)),
        }
    }
}

fn listen(
    caches: &Caches,
    objects: mpsc::UnboundedReceiver<ObjectChange>,
    commands: mpsc::UnboundedReceiver<Command>,
) -> Events {
    let (sender, nodes_and_pods) = mpsc::unbounded_channel();
    let (nodes, namespaces) = (sender.clone(), sender.clone());
    // Sending fails once the scheduler has ended; then nobody needs to know.
    caches.of::<Node>().subscribe(move |event| drop(nodes.send(Event::Node(event.clone()))));
    caches
        .of::<Namespace>()
        .subscribe(move |event| drop(namespaces.send(Event::Namespace(event.clone()))));
    caches.of::<Pod>().subscribe(move |event| drop(sender.send(Event::Pod(event.clone()))));
    Events { nodes_and_pods, objects, commands }
}

struct Scheduler {
    core: Core,
    client: Client,
    clock: Clock,
    /// One for each profile, in whose name it reports.
    recorders: Vec<SeriesRecorder>,
    commands: mpsc::UnboundedSender<Command>,
    metrics: Metrics,
    max_bindings: usize,
    nominated_node_name_for_expectation: bool,
    /// Since the metrics were last brought up to date.
    attempts: u32,
    bindings: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// Writes of conditions.
    telling: Telling,
}

impl Scheduler {
    async fn work(mut self, events: &mut Events) {
        loop {
            while let Some(event) = events.at_hand() {
                self.apply(event);
            }
            while let Some(Some(answer)) = self.bindings.next().now_or_never() {
                self.answered(answer);
            }
            while let Some(Some(())) = self.telling.answered().now_or_never() {}
            if self.attempts >= SHOWN_EVERY {
                self.show();
            }
            if self.has_room() && self.attempt().await {
                // The next attempt should know what this one's neighbours have done meanwhile.
                tokio::task::yield_now().await;
                continue;
            }
            self.show();
            if !self.wait(events).await {
                return;
            }
        }
    }

    /// Shows in the metrics how much waits.
    fn show(&mut self) {
        self.attempts = 0;
        self.metrics.sizes(&mut self.core, self.bindings.len());
    }

    /// Whether another binding can be on its way. Pods that wait for permission do not count, since what they wait for may be
    /// others, nor do those whose nodes are prepared, which may take minutes.
    fn has_room(&self) -> bool {
        self.bindings.len() < self.max_bindings + self.core.waiting_pods().len()
    }

    /// Waits until there may be something to do; `false` when there never will be.
    async fn wait(&mut self, events: &mut Events) -> bool {
        let now = self.clock.now();
        let due = self
            .core
            .next_due()
            .map(|due| Duration::try_from(due.duration_since(now)).unwrap_or(Duration::ZERO));
        let (full, waiting_pods) = (!self.has_room(), self.core.waiting_pods().clone());
        tokio::select! {
            // In order, so that a run can be repeated; none of them starves another, since `work` takes in all there is.
            biased;
            event = events.next() => match event {
                Some(event) => self.apply(event),
                None => return false,
            },
            Some(answer) = self.bindings.next(), if !self.bindings.is_empty() => self.answered(answer),
            () = waiting_pods.pre_bind_started(), if full => {}
            Some(()) = self.telling.answered(), if !self.telling.is_empty() => {}
            () = self.clock.sleep(due.unwrap_or_default()), if due.is_some() => {}
        }
        true
    }

    fn apply(&mut self, event: Event) {
        // Others than events may have told of something before.
        self.core.take_seen();
        let began = Instant::now();
        self.take_in(event);
        let took = began.elapsed();
        for (resource, action) in self.core.take_seen() {
            self.metrics.handled(&format!("{}{}", resource.as_str(), action.as_str()), took);
        }
    }

    fn take_in(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Node(CacheEvent::Deleted(node)) => self.core.node_gone(&node, now),
            Event::Node(event) => self.core.node_seen(event.object(), now),
            Event::Pod(CacheEvent::Deleted(pod)) => self.core.pod_gone(&pod.meta.uid, now),
            Event::Pod(CacheEvent::Updated { old, new }) => {
                // Deleted and made again while the cache looked away.
                if old.meta.uid != new.meta.uid {
                    self.core.pod_gone(&old.meta.uid, now);
                }
                self.core.pod_seen(&new, now);
            }
            Event::Pod(event) => self.core.pod_seen(event.object(), now),
            Event::Namespace(event) => self.core.namespace_seen(&event),
            Event::Object(object) => self.core.object_seen(object, now),
            Event::Command(Command::Activate(uid)) => self.core.queue_mut().activate(&uid, now),
            Event::Command(Command::Done(uid)) => self.core.queue_mut().done(&uid),
        }
    }

    /// Tries one pod; whether there was one.
    async fn attempt(&mut self) -> bool {
        let (began, now) = (Instant::now(), self.clock.now());
        let Some(Attempted { step, trace, profile }) = self.core.attempt(now).await else {
            return false;
        };
        self.attempts += 1;
        self.metrics.searched(began.elapsed());
        self.metrics.traced(&trace, self.core.profile(profile));
        match step {
            Step::Bind(assigned) => {
                let binder = self.binder(profile);
                let told = self.telling.about(&assigned.popped.uid);
                self.bindings.push(Box::pin(binder.bind(assigned, told, began)));
            }
            Step::Failed(failure) => self.failed(&failure, false, began, now),
            Step::Deleting(info) => self.tell_deleting(&info, profile),
            Step::Dropped => {}
        }
        true
    }

    fn binder(&self, profile: usize) -> Binder {
        Binder {
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

    fn answered(&mut self, answer: Answer) {
        let Answer { assigned, began, result, nominated } = answer;
        let now = self.clock.now();
        match result {
            Ok(()) => {
                let name = self.core.profile(assigned.popped.profile).name();
                self.metrics.attempted(Outcome::Scheduled, name, began.elapsed());
                let waited = now.duration_since(assigned.popped.first).unsigned_abs();
                self.metrics.scheduled_after(&assigned.popped, waited);
                self.tell_scheduled(&assigned);
                let began = Instant::now();
                self.core.bound(&assigned);
                let name = self.core.profile(assigned.popped.profile).name();
                self.metrics.ran(Point::PostBind.as_str(), "Success", name, began.elapsed());
            }
            Err(cause) => {
                if let NotBound::Failed(error) = &cause {
                    let meta = &assigned.popped.info.pod.meta;
                    tracing::warn!(namespace = %meta.namespace, name = %meta.name, %error, "Pod not bound");
                }
                if let Some(failure) = self.core.not_bound(assigned, cause, now) {
                    self.failed(&failure, nominated, began, now);
                }
            }
        }
    }

    fn failed(&mut self, failure: &Failure, nominated: bool, began: Instant, now: Timestamp) {
        let outcome = if failure.error { Outcome::Error } else { Outcome::Unschedulable };
        let name = self.core.profile(failure.profile).name();
        self.metrics.attempted(outcome, name, began.elapsed());
        self.tell_failure(failure, nominated, now);
    }

    fn tell_scheduled(&self, assigned: &Assigned) {
        let meta = &assigned.popped.info.pod.meta;
        let note = Note {
            regarding: target(&assigned.popped.info),
            warning: false,
            reason: "Scheduled",
            message: format!(
                "Successfully assigned {}/{} to {}",
                meta.namespace, meta.name, assigned.node
            ),
        };
        // A pod is bound once.
        self.recorders[assigned.popped.profile].record_once(&note, "Binding", None);
    }

    fn tell_deleting(&self, info: &PodInfo, profile: usize) {
        let meta = &info.pod.meta;
        let note = Note {
            regarding: target(info),
            warning: true,
            reason: "FailedScheduling",
            message: format!("skip schedule deleting pod: {}/{}", meta.namespace, meta.name),
        };
        self.recorders[profile].record(&note, "Scheduling", None);
    }

    /// The event, and the condition where it is not already so.
    fn tell_failure(&mut self, failure: &Failure, told_nominated: bool, now: Timestamp) {
        let Failure { info, message, error, nominated, profile } = failure;
        let note = Note {
            regarding: target(info),
            warning: true,
            reason: "FailedScheduling",
            message: condition::limited(message),
        };
        self.recorders[*profile].record(&note, "Scheduling", None);
        let reason = if *error { "SchedulerError" } else { "Unschedulable" };
        let told = Told { reason, message, nominated: nominated.as_deref(), told_nominated };
        let Some(patch) = condition::patch(&info.pod, &told, now) else {
            return;
        };
        let (client, pod) = (self.client.clone(), Arc::clone(&info.pod));
        self.telling.send(info.uid(), async move {
            let (kind, meta, form) = (Pod::kind(), &pod.meta, PatchForm::Strategic);
            let written =
                client.patch::<Metadata>(&kind, &meta.namespace, &meta.name, "status", form, patch.into()).await;
            if let Err(error) = written {
                tracing::debug!(namespace = %meta.namespace, name = %meta.name, %error, "Condition not written");
            }
        });
    }
}

fn target(info: &PodInfo) -> Target {
    let meta = &info.pod.meta;
    Target {
        kind: Pod::kind(),
        namespace: Arc::from(&*meta.namespace),
        name: Arc::from(&*meta.name),
        uid: Arc::from(&*meta.uid),
    }
}
