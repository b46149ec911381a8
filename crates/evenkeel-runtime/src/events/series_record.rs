//! The recorder of events.k8s.io/v1 Events: a bounded queue, and one task that has several on their way.

use super::{
    record::next,
    series::{Book, Series},
    sink::{Write, write},
    wire,
};
use crate::{
    client::Client,
    clock::Clock,
    plan::{Note, Target},
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

/// So many events wait at most. A scheduler places a burst of pods several times faster than a server stores what is told
/// of them, and upstream keeps all that wait (a goroutine each); here some hundred bytes each, and only while they do.
const QUEUE: usize = 50_000;
/// So many events are on their way at a time.
const AT_ONCE: usize = 64;
const FINISH_EVERY: Duration = Duration::from_secs(6 * 60);
const REFRESH_EVERY: Duration = Duration::from_secs(30 * 60);

/// Records events.k8s.io/v1 Events, in which repeats become a series; clones share it. This is what the scheduler uses.
///
/// Nothing is written before [`SeriesRecorder::start`].
#[derive(Clone)]
pub struct SeriesRecorder {
    shared: Arc<Shared>,
}

struct Recorded {
    note: Note,
    action: &'static str,
    related: Option<Target>,
    at: Timestamp,
    /// It cannot happen again.
    once: bool,
}

struct Shared {
    controller: String,
    instance: String,
    client: Client,
    clock: Clock,
    sender: mpsc::Sender<Recorded>,
    /// Taken by the writer when it starts.
    receiver: Mutex<Option<mpsc::Receiver<Recorded>>>,
    dropped: AtomicU64,
}

impl SeriesRecorder {
    /// A recorder whose events name `controller` and `instance` (upstream: `<controller>-<hostname>`) as who reports.
    pub fn new(client: Client, controller: &str, instance: &str, clock: Clock) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let shared = Shared {
            controller: controller.to_owned(),
            instance: instance.to_owned(),
            client,
            clock,
            sender,
            receiver: Mutex::new(Some(receiver)),
            dropped: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Records an event: what was done (`action`, such as `Binding`) and, if so, which second object is concerned. Never
    /// blocks; with 50,000 waiting already the event is dropped and counted.
    pub fn record(&self, note: &Note, action: &'static str, related: Option<&Target>) {
        self.send(note, action, related, false);
    }

    /// As [`SeriesRecorder::record`], of something that cannot happen again: nothing is kept for the sake of repeats.
    pub fn record_once(&self, note: &Note, action: &'static str, related: Option<&Target>) {
        self.send(note, action, related, true);
    }

    fn send(&self, note: &Note, action: &'static str, related: Option<&Target>, once: bool) {
        let (note, related, at) = (note.clone(), related.cloned(), self.shared.clock.now());
        if self.shared.sender.try_send(Recorded { note, action, related, at, once }).is_err() {
            let dropped = self.shared.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(controller = self.shared.controller, dropped, action, "event dropped");
        }
    }

    /// How many events were dropped because too many waited.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Starts the writer in `tasks`; a second time does nothing. When the group is told to stop, what waits is still
    /// tried once.
    pub fn start(&self, tasks: &Tasks) {
        let receiver = self.shared.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return };
        let (shared, stop) = (Arc::clone(&self.shared), tasks.token());
        tasks.spawn(format!("{} events", shared.controller), async move {
            shared.keep(receiver, &stop).await;
        });
    }
}

impl Shared {
    async fn keep(&self, mut receiver: mpsc::Receiver<Recorded>, stop: &CancellationToken) {
        let mut book = Book::default();
        let mut finish = every(FINISH_EVERY);
        let mut refresh = every(REFRESH_EVERY);
        let mut writes = FuturesUnordered::new();
        loop {
            let due: Vec<Series> = tokio::select! {
                biased;
                Some(()) = writes.next(), if !writes.is_empty() => continue,
                recorded = next(&mut receiver, stop), if writes.len() < AT_ONCE => {
                    let Some(Recorded { note, action, related, at, once }) = recorded else { break };
                    match once {
                        true => vec![Series::first(note, action, related, at)],
                        false => book.record(note, action, related, at).into_iter().collect(),
                    }
                }
                _ = finish.tick() => book.finish(self.clock.now()),
                _ = refresh.tick() => book.refresh(),
            };
            for event in due {
                // What an event has become must not overtake it.
                if event.series.is_some() {
                    while writes.next().await.is_some() {}
                }
                writes.push(self.write(event, stop));
            }
        }
        while writes.next().await.is_some() {}
    }

    async fn write(&self, event: Series, stop: &CancellationToken) {
        let event = &event;
        let wire = Write {
            kind: &wire::EVENTS,
            regarding: &event.note.regarding,
            name: &event.name,
            body: wire::series(event, &self.controller, &self.instance),
            patch: event.series.is_some().then(|| wire::series_patch(event)),
        };
        write(&self.client, &self.clock, stop, wire).await;
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
