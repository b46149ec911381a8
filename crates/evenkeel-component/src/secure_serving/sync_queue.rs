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

    /// Enqueues a sync. Requests before its start are merged.
    pub(super) fn ask(&self) {
        self.0.add((), Priority::NORMAL);
    }

    /// Runs syncs until dropped. A failed sync is retried with backoff. Its error is logged with the message
    /// `trouble` when it changes.
    pub(super) async fn work<E: Error + 'static>(
        &self,
        trouble: &'static str,
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
                        tracing::error!(error, "{trouble}");
                    }
                    failing = error;
                    self.0.add_rate_limited(());
                }
            }
            self.0.done(&());
        }
    }
}
