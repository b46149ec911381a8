//! Event recorder for core/v1: a bounded queue and one writer task.

use super::{
    correlate::EventCorrelator,
    sink::{EventWrite, record_to_sink},
    unique_times::UniqueTimes,
    wire,
};
use crate::{client::Client, clock::Clock, plan::EventRecord, tasks::Tasks};
use evenkeel_api::time::Timestamp;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const MAX_QUEUED_EVENTS: usize = 1000;

/// Records core/v1 Events of one component. Clones share it.
///
/// The recorder writes nothing before [`EventRecorder::start`].
#[derive(Clone)]
pub struct EventRecorder {
    shared: Arc<Shared>,
}

/// State that the clones of the recorder share.
struct Shared {
    component: String,
    client: Client,
    clock: Clock,
    sender: mpsc::Sender<(EventRecord, Timestamp)>,
    /// Taken by the writer task at its start.
    receiver: Mutex<Option<mpsc::Receiver<(EventRecord, Timestamp)>>>,
    dropped: AtomicU64,
    times: UniqueTimes,
}

impl EventRecorder {
    /// Creates a recorder whose events have `component` as their source.
    pub fn new(client: Client, component: &str, clock: Clock) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        let shared = Shared {
            component: component.to_owned(),
            client,
            clock,
            sender,
            receiver: Mutex::new(Some(receiver)),
            dropped: AtomicU64::new(0),
            times: UniqueTimes::new(component),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Records an event. Never blocks: if 1,000 events are queued, drops and counts the event.
    #[doc(alias = "Eventf")]
    pub fn record(&self, event: &EventRecord) {
        let at = self.shared.times.next(&self.shared.clock);
        if self.shared.sender.try_send((event.clone(), at)).is_err() {
            let dropped = self.shared.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(
                component = self.shared.component,
                dropped,
                reason = &*event.reason,
                "event dropped"
            );
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
        // After a panic, its event is lost, and the counts of repeated events start again.
        tasks.spawn_restarting(format!("{} events", shared.component), move || {
            let (shared, stop, receiver) =
                (Arc::clone(&shared), stop.clone(), Arc::clone(&receiver));
            async move { shared.run(&mut *receiver.lock().await, &stop).await }
        });
    }
}

impl Shared {
    async fn run(
        &self,
        receiver: &mut mpsc::Receiver<(EventRecord, Timestamp)>,
        stop: &CancellationToken,
    ) {
        let mut correlator = EventCorrelator::new();
        while let Some((event, at)) = next(receiver, stop).await {
            let Some(entry) = correlator.correlate(&event, at, self.clock.instant()) else {
                continue;
            };
            let event = EventWrite {
                kind: &wire::CORE,
                regarding: &entry.regarding,
                name: &entry.name,
                body: wire::core_event(&entry, &self.component),
                patch: (entry.count > 1).then(|| wire::core_patch(&entry)),
            };
            record_to_sink(&self.client, &self.clock, stop, event).await;
        }
    }
}

/// Receives the next event. After `stop`, returns only events that are already queued.
pub(super) async fn next<T>(
    receiver: &mut mpsc::Receiver<T>,
    stop: &CancellationToken,
) -> Option<T> {
    match stop.run_until_cancelled(receiver.recv()).await {
        Some(received) => received,
        None => receiver.try_recv().ok(),
    }
}
