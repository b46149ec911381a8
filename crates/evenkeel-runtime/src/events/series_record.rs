//! Event recorder for events.k8s.io/v1: a bounded queue, and one task with several concurrent writes.

use super::{
    record::next,
    series::{CachedEvent, EventCache},
    sink::{EventWrite, record_to_sink},
    unique_times::UniqueTimes,
    wire,
};
use crate::{
    client::Client,
    clock::Clock,
    plan::{EventRecord, Target},
    tasks::Tasks,
};
use evenkeel_api::time::Timestamp;
use futures::{StreamExt as _, stream::FuturesUnordered};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval_at},
};
use tokio_util::sync::CancellationToken;

/// Maximum number of queued events, each of a few hundred bytes. A scheduler binds a burst of pods several times faster
/// than a server stores their events. Upstream starts a goroutine for each queued event.
const MAX_QUEUED_EVENTS: usize = 50_000;
/// Maximum number of concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 64;
/// Interval at which series without recent repeats are finished.
const FINISH_TIME: Duration = Duration::from_secs(6 * 60);
/// Interval at which series are written again, before their Events expire.
const REFRESH_TIME: Duration = Duration::from_secs(30 * 60);

/// Records events.k8s.io/v1 Events, in which repeats become a series. Clones share it. The scheduler uses
/// it.
///
/// The recorder writes nothing before [`SeriesEventRecorder::start`].
#[derive(Clone)]
pub struct SeriesEventRecorder {
    shared: Arc<Shared>,
}

/// Event that waits for the writer task.
struct QueuedEvent {
    event: EventRecord,
    action: &'static str,
    related: Option<Target>,
    at: Timestamp,
    /// Whether the event cannot repeat, so that it is not cached.
    once: bool,
}

/// State that the clones of the recorder share.
struct Shared {
    controller: String,
    instance: String,
    client: Client,
    clock: Clock,
    sender: mpsc::Sender<QueuedEvent>,
    /// Taken by the writer task at its start.
    receiver: Mutex<Option<mpsc::Receiver<QueuedEvent>>>,
    dropped: AtomicU64,
    times: UniqueTimes,
}

impl SeriesEventRecorder {
    /// Creates a recorder whose events have this reporting controller and instance (upstream:
    /// `<controller>-<hostname>`).
    pub fn new(client: Client, controller: &str, instance: &str, clock: Clock) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        let shared = Shared {
            controller: controller.to_owned(),
            instance: instance.to_owned(),
            client,
            clock,
            sender,
            receiver: Mutex::new(Some(receiver)),
            dropped: AtomicU64::new(0),
            times: UniqueTimes::new(controller),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Records an event with its `action`, such as `Binding`, and the related object, if any. Never blocks: if 50,000
    /// events are queued, drops and counts the event.
    pub fn record(&self, event: &EventRecord, action: &'static str, related: Option<&Target>) {
        self.send(event, action, related, false);
    }

    /// Like [`SeriesEventRecorder::record`], for an event that cannot repeat and is therefore not cached.
    pub fn record_once(&self, event: &EventRecord, action: &'static str, related: Option<&Target>) {
        self.send(event, action, related, true);
    }

    fn send(
        &self,
        event: &EventRecord,
        action: &'static str,
        related: Option<&Target>,
        once: bool,
    ) {
        let at = self.shared.times.next(&self.shared.clock);
        let (event, related) = (event.clone(), related.cloned());
        if self.shared.sender.try_send(QueuedEvent { event, action, related, at, once }).is_err() {
            let dropped = self.shared.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(controller = self.shared.controller, dropped, action, "event dropped");
        }
    }

    /// Returns the number of events that were dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Starts the writer in `tasks`. A second call does nothing. When the group stops, the writer sends each queued
    /// event, without retries.
    pub fn start(&self, tasks: &Tasks) {
        let receiver = self.shared.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return };
        let (shared, stop) = (Arc::clone(&self.shared), tasks.token());
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        // After a panic, its event is lost, and the series start again.
        tasks.spawn_restarting(format!("{} events", shared.controller), move || {
            let (shared, stop, receiver) =
                (Arc::clone(&shared), stop.clone(), Arc::clone(&receiver));
            async move { shared.run(&mut *receiver.lock().await, &stop).await }
        });
    }
}

impl Shared {
    async fn run(&self, receiver: &mut mpsc::Receiver<QueuedEvent>, stop: &CancellationToken) {
        let mut cache = EventCache::default();
        let mut finish = interval_from_now(FINISH_TIME, &self.clock);
        let mut refresh = interval_from_now(REFRESH_TIME, &self.clock);
        let mut writes = FuturesUnordered::new();
        loop {
            let due: Vec<CachedEvent> = tokio::select! {
                biased;
                Some(()) = writes.next(), if !writes.is_empty() => continue,
                recorded = next(receiver, stop), if writes.len() < MAX_CONCURRENT_WRITES => {
                    let Some(QueuedEvent { event, action, related, at, once }) = recorded else { break };
                    if once {
                        vec![CachedEvent::first(event, action, related, at)]
                    } else {
                        cache.record(event, action, related, at).into_iter().collect()
                    }
                }
                _ = finish.tick() => cache.finish_series(self.clock.now()),
                _ = refresh.tick() => cache.refresh_existing_event_series(),
            };
            for event in due {
                // The server must receive the create of an event before the patch of its series.
                if event.series.is_some() {
                    while writes.next().await.is_some() {}
                }
                writes.push(self.record_to_sink(event, stop));
            }
        }
        while writes.next().await.is_some() {}
    }

    async fn record_to_sink(&self, event: CachedEvent, stop: &CancellationToken) {
        let event = &event;
        let write = EventWrite {
            kind: &wire::EVENTS,
            regarding: &event.record.regarding,
            name: &event.name,
            body: wire::series_event(event, &self.controller, &self.instance),
            patch: event.series.is_some().then(|| wire::series_patch(event)),
        };
        record_to_sink(&self.client, &self.clock, stop, write).await;
    }
}

fn interval_from_now(period: Duration, clock: &Clock) -> tokio::time::Interval {
    let mut interval = interval_at(clock.instant() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
