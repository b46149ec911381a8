//! Repeated syncs of a server's inputs with backoff, under upstream's queue names. The inputs are files, TLS
//! settings and the authentication ConfigMap.

use evenkeel_runtime::{
    client::full_text,
    clock::Clock,
    queue::{self, Priority, Queue},
};
use std::error::Error;

/// Workqueue with a single key. Clones share it.
#[derive(Clone)]
pub(super) struct SyncQueue(Queue<()>);

impl SyncQueue {
    /// Creates a queue that counts under this name, if there are metrics.
    pub(super) fn new(name: &str, metrics: Option<&queue::Metrics>, clock: &Clock) -> Self {
        Self(match metrics {
            Some(metrics) => Queue::new(name, metrics, clock),
            None => Queue::unnamed(clock),
        })
    }

    /// Enqueues a sync. Several calls before the sync starts cause only one.
    pub(super) fn enqueue(&self) {
        self.0.add((), Priority::NORMAL);
    }

    /// Runs syncs until dropped, and retries a failed one with backoff. Logs an error with `message` if it differs
    /// from the error before.
    pub(super) async fn work<E: Error + 'static>(
        &self,
        message: &'static str,
        pass: impl Fn() -> Result<(), E>,
    ) {
        let mut failing = String::new();
        while let Some(()) = self.0.next().await {
            match pass() {
                Ok(()) => {
                    self.0.forget(&());
                    failing.clear();
                }
                Err(error) => {
                    let error = full_text(&error);
                    if error != failing {
                        tracing::error!(error, "{message}");
                    }
                    failing = error;
                    self.0.add_rate_limited(());
                }
            }
            self.0.done(&());
        }
    }
}
