//! The recorder of core/v1 Events: a bounded queue and one writer.

use super::{
    correlate::Correlator,
    sink::{Write, write},
    wire,
};
use crate::{client::Client, clock::Clock, plan::Note, tasks::Tasks};
use evenkeel_api::time::{SignedDuration, Timestamp};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{sync::mpsc, time::Instant};

const QUEUE: usize = 1000;

/// Records core/v1 Events in the name of one component; clones share it.
///
/// Nothing is written before [`Recorder::start`].
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

struct Shared {
    component: String,
    client: Client,
    clock: Clock,
    sender: mpsc::Sender<(Note, Timestamp)>,
    /// Taken by the writer when it starts.
    receiver: Mutex<Option<mpsc::Receiver<(Note, Timestamp)>>>,
    dropped: AtomicU64,
    /// Time of the last event. Names are made of times, so that two events never have the same.
    last: Mutex<Timestamp>,
}

impl Shared {
    /// The time and the component's own fraction of a microsecond, or a nanosecond after the last event's where that is
    /// later: on a clock that stands still, two components do not give their events one name either.
    fn unique_time(&self) -> Timestamp {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let later = |time: Timestamp, nanos| {
            time.checked_add(SignedDuration::from_nanos(nanos)).unwrap_or(time)
        };
        *last = later(self.clock.now(), fraction(&self.component)).max(later(*last, 1));
        *last
    }
}

/// Nanoseconds, less than a thousand, by which a component's events are told from others' of the same instant.
fn fraction(component: &str) -> i64 {
    // Its keys are fixed, unlike those of a map's hasher.
    let mut hasher = DefaultHasher::new();
    component.hash(&mut hasher);
    (hasher.finish() % 1000) as i64
}

impl Recorder {
    /// A recorder whose events name `component` as their source.
    pub fn new(client: Client, component: &str, clock: Clock) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let shared = Shared {
            component: component.to_owned(),
            client,
            clock,
            sender,
            receiver: Mutex::new(Some(receiver)),
            dropped: AtomicU64::new(0),
            last: Mutex::new(Timestamp::MIN),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Records an event. Never blocks; with a thousand waiting already the event is dropped and counted.
    pub fn record(&self, note: &Note) {
        let at = self.shared.unique_time();
        if self.shared.sender.try_send((note.clone(), at)).is_err() {
            let dropped = self.shared.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(
                component = self.shared.component,
                dropped,
                reason = note.reason,
                "event dropped"
            );
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
        let Some(mut receiver) = receiver else { return };
        let (shared, stop) = (Arc::clone(&self.shared), tasks.token());
        tasks.spawn(format!("{} events", shared.component), async move {
            let mut correlator = Correlator::new();
            while let Some((note, at)) = next(&mut receiver, &stop).await {
                let Some(entry) = correlator.correlate(&note, at, Instant::now()) else { continue };
                let event = Write {
                    kind: &wire::CORE,
                    regarding: &entry.regarding,
                    name: &entry.name,
                    body: wire::core(&entry, &shared.component),
                    patch: (entry.count > 1).then(|| wire::core_patch(&entry)),
                };
                write(&shared.client, &shared.clock, &stop, event).await;
            }
        });
    }
}

/// What is recorded next; once told to stop, only what is there already.
pub(super) async fn next<T>(
    receiver: &mut mpsc::Receiver<T>,
    stop: &tokio_util::sync::CancellationToken,
) -> Option<T> {
    match stop.run_until_cancelled(receiver.recv()).await {
        Some(received) => received,
        None => receiver.try_recv().ok(),
    }
}
