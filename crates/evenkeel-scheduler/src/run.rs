//! The shell: one loop that takes changes in, tries pods one after the other, and has bindings on their way meanwhile.

use evenkeel_api::{
    View as _,
    time::Timestamp,
    views::{Node, Pod},
};
use evenkeel_runtime::{
    cache::{CacheEvent, Caches},
    client::{ApiError, Client, Metadata},
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
    SchedulerOptions, condition,
    core::{Assigned, Core, Failure, Step},
    framework::{Handle, ObjectChange, Permitted, Point, Profile, Unprepared, Watches},
    metrics::{Metrics, Outcome},
    nodes::NodeTable,
    pod::PodInfo,
};

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
        let (name, instance) = ("default-scheduler", &options.instance);
        let recorder = SeriesRecorder::new(client.clone(), name, instance, clock.clone());
        let (watches, objects) = Watches::new();
        let events = listen(&caches, objects);
        let watches = Arc::new(watches);
        let handle =
            Handle { caches: caches.clone(), clock: clock.clone(), watches: Arc::clone(&watches) };
        options.profiles.iter().for_each(|profile| profile.connect(&handle));
        let scheduler = Scheduler {
            core: Core::new(options),
            metrics: Metrics::register(registry),
            max_bindings: options.max_bindings.max(1),
            client,
            clock,
            recorder,
            bindings: FuturesUnordered::new(),
            patches: FuturesUnordered::new(),
        };
        Self { scheduler, events, caches, watches }
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

    /// Looks at the nodes as if a pod were not there.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.scheduler.core.pod_gone(uid, self.scheduler.clock.now());
    }

    /// The profile that a pod is for, and the nodes.
    pub(crate) fn sight(&self, pod: &Pod) -> Option<(&Profile, &NodeTable)> {
        let core = &self.scheduler.core;
        Some((core.profile_of(pod)?, core.nodes()))
    }

    /// Schedules pods until `shutdown` is cancelled.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self { scheduler, mut events, caches, watches } = self;
        let tasks = Tasks::under(shutdown.clone());
        scheduler.recorder.start(&tasks);
        let work = async {
            caches.of::<Node>().synced().await;
            caches.of::<Pod>().synced().await;
            for synced in watches.syncs() {
                synced.await;
            }
            scheduler.work(&mut events).await;
        };
        shutdown.run_until_cancelled(work).await;
        tasks.join().await;
    }
}

/// A change in a cache.
enum Event {
    Node(CacheEvent<Node>),
    Pod(CacheEvent<Pod>),
    Object(ObjectChange),
}

/// What changes. Pods and nodes in their order, other objects in theirs.
struct Events {
    nodes_and_pods: mpsc::UnboundedReceiver<Event>,
    objects: mpsc::UnboundedReceiver<ObjectChange>,
}

impl Events {
    /// The next change, if there is one already.
    fn at_hand(&mut self) -> Option<Event> {
        let first = self.nodes_and_pods.try_recv();
        first.or_else(|_| self.objects.try_recv().map(Event::Object)).ok()
    }

    /// The next change; `None` when there never will be one.
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            // In order, so that a run can be repeated.
            biased;
            event = self.nodes_and_pods.recv() => event,
            Some(object) = self.objects.recv() => Some(Event::Object(object)),
        }
    }
}

fn listen(caches: &Caches, objects: mpsc::UnboundedReceiver<ObjectChange>) -> Events {
    let (sender, nodes_and_pods) = mpsc::unbounded_channel();
    let nodes = sender.clone();
    // Sending fails once the scheduler has ended; then nobody needs to know.
    caches.of::<Node>().subscribe(move |event| drop(nodes.send(Event::Node(event.clone()))));
    caches.of::<Pod>().subscribe(move |event| drop(sender.send(Event::Pod(event.clone()))));
    Events { nodes_and_pods, objects }
}

struct Scheduler {
    core: Core,
    client: Client,
    clock: Clock,
    recorder: SeriesRecorder,
    metrics: Metrics,
    max_bindings: usize,
    bindings: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// Writes of conditions; nobody waits for them.
    patches: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// What came of a binding.
struct Answer {
    assigned: Assigned,
    began: Instant,
    result: Result<(), BindError>,
}

/// Why a pod was not bound.
#[derive(Debug, thiserror::Error)]
enum BindError {
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("{0}")]
    Unprepared(Unprepared),
    #[error("{0}")]
    Refused(String),
    #[error("timed out waiting for permission to bind")]
    TimedOut,
    #[error("no plugin binds pods")]
    NoBinder,
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
            while let Some(Some(())) = self.patches.next().now_or_never() {}
            if self.bindings.len() < self.max_bindings && self.attempt() {
                // The next attempt should know what this one's neighbours have done meanwhile.
                tokio::task::yield_now().await;
                continue;
            }
            self.metrics.sizes(&self.core);
            if !self.wait(events).await {
                return;
            }
        }
    }

    /// Waits until there may be something to do; `false` when there never will be.
    async fn wait(&mut self, events: &mut Events) -> bool {
        let now = self.clock.now();
        let due = self
            .core
            .next_due()
            .map(|due| Duration::try_from(due.duration_since(now)).unwrap_or(Duration::ZERO));
        tokio::select! {
            // In order, so that a run can be repeated; none of them starves another, since `work` takes in all there is.
            biased;
            event = events.next() => match event {
                Some(event) => self.apply(event),
                None => return false,
            },
            Some(answer) = self.bindings.next(), if !self.bindings.is_empty() => self.answered(answer),
            Some(()) = self.patches.next(), if !self.patches.is_empty() => {}
            () = self.clock.sleep(due.unwrap_or_default()), if due.is_some() => {}
        }
        true
    }

    fn apply(&mut self, event: Event) {
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
            Event::Object(object) => self.core.object_seen(object, now),
        }
    }

    /// Tries one pod; whether there was one.
    fn attempt(&mut self) -> bool {
        let (began, now) = (Instant::now(), self.clock.now());
        let Some(step) = self.core.attempt(now) else { return false };
        self.metrics.searched(began.elapsed());
        match step {
            Step::Bind(assigned) => {
                let profile = self.core.profile(assigned.popped.profile).clone();
                self.bindings.push(Box::pin(bind(self.client.clone(), profile, assigned, began)));
            }
            Step::Failed(failure) => {
                let outcome = if failure.error { Outcome::Error } else { Outcome::Unschedulable };
                self.metrics.attempted(
                    outcome,
                    self.core.profile(failure.profile).name(),
                    began.elapsed(),
                );
                self.tell_failure(&failure, now);
            }
            Step::Deleting(info) => self.tell_deleting(&info),
            Step::Dropped => {}
        }
        true
    }

    fn answered(&mut self, answer: Answer) {
        let Answer { assigned, began, result } = answer;
        let profile = assigned.popped.profile;
        let name = self.core.profile(profile).name();
        match result {
            Ok(()) => {
                self.metrics.attempted(Outcome::Scheduled, name, began.elapsed());
                let waited = self.clock.now().duration_since(assigned.popped.first).unsigned_abs();
                self.metrics.scheduled_after(assigned.popped.attempts, waited);
                self.tell_scheduled(&assigned);
                self.core.bound(&assigned);
            }
            Err(BindError::Api(error)) if error.is_not_found() => {
                self.core.binding_is_moot(assigned, self.clock.now());
            }
            Err(error) => {
                self.metrics.attempted(Outcome::Error, name, began.elapsed());
                let (now, info) = (self.clock.now(), assigned.popped.info.clone());
                let message = format!("binding rejected: {error}");
                if self.core.not_bound(assigned, now) {
                    tracing::warn!(namespace = %info.pod.meta.namespace, name = %info.pod.meta.name, %error, "Pod not bound");
                    self.tell_failure(
                        &Failure { info, profile, message, error: true, nominated: None },
                        now,
                    );
                }
            }
        }
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
        self.recorder.record(&note, "Binding", None);
    }

    fn tell_deleting(&self, info: &PodInfo) {
        let meta = &info.pod.meta;
        let note = Note {
            regarding: target(info),
            warning: true,
            reason: "FailedScheduling",
            message: format!("skip schedule deleting pod: {}/{}", meta.namespace, meta.name),
        };
        self.recorder.record(&note, "Scheduling", None);
    }

    /// The event, and the condition where it is not already so.
    fn tell_failure(&mut self, failure: &Failure, now: Timestamp) {
        let Failure { info, message, error, nominated, .. } = failure;
        let note = Note {
            regarding: target(info),
            warning: true,
            reason: "FailedScheduling",
            message: condition::limited(message),
        };
        self.recorder.record(&note, "Scheduling", None);
        let reason = if *error { "SchedulerError" } else { "Unschedulable" };
        let Some(patch) = condition::patch(&info.pod, reason, message, nominated.as_deref(), now)
        else {
            return;
        };
        let (client, pod) = (self.client.clone(), Arc::clone(&info.pod));
        self.patches.push(Box::pin(async move {
            let (kind, meta, form) = (Pod::kind(), &pod.meta, PatchForm::Strategic);
            let written =
                client.patch::<Metadata>(&kind, &meta.namespace, &meta.name, "status", form, patch.into()).await;
            if let Err(error) = written {
                tracing::debug!(namespace = %meta.namespace, name = %meta.name, %error, "Condition not written");
            }
        }));
    }
}

/// Waits for permission, prepares and binds.
async fn bind(client: Client, profile: Profile, mut assigned: Assigned, began: Instant) -> Answer {
    let permits = std::mem::take(&mut assigned.permits);
    let result = async {
        for permit in permits {
            permitted(permit).await?;
        }
        let (info, node) = (&assigned.popped.info, &*assigned.node);
        for (_, plugin) in profile.at(Point::PreBind) {
            if let Some(plugin) = plugin.as_pre_bind() {
                plugin.pre_bind(&client, info, node).await.map_err(unprepared)?;
            }
        }
        for (_, plugin) in profile.at(Point::Bind) {
            if let Some(plugin) = plugin.as_bind()
                && plugin.bind(&client, info, node).await?
            {
                return Ok(());
            }
        }
        Err(BindError::NoBinder)
    }
    .await;
    Answer { assigned, began, result }
}

/// What the API server said counts as said of the binding.
fn unprepared(error: Unprepared) -> BindError {
    match error {
        Unprepared::Api(error) => BindError::Api(error),
        error => BindError::Unprepared(error),
    }
}

/// The longest that upstream lets a plugin wait.
const LONGEST_PERMIT: Duration = Duration::from_secs(15 * 60);

async fn permitted(permit: Permitted) -> Result<(), BindError> {
    match permit {
        Permitted::Yes => Ok(()),
        Permitted::No(why) => Err(BindError::Refused(why.reasons.join(", "))),
        Permitted::Wait(limit, answer) => {
            match tokio::time::timeout(limit.min(LONGEST_PERMIT), answer).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(why)) => Err(BindError::Refused(why.reasons.join(", "))),
                Err(_) => Err(BindError::TimedOut),
            }
        }
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
