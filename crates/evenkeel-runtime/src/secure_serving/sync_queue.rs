//! Repeated syncs of a server's inputs with backoff, under upstream's queue names. The inputs are files, TLS
//! settings and the authentication ConfigMap.

use crate::{
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

    /// Calls `sync` for each enqueued sync, until the future is dropped, and retries a failed sync with backoff. Logs
    /// an error with `message`, unless the previous sync failed with the same error.
    pub(super) async fn work<E: Error + 'static>(
        &self,
        message: &'static str,
        sync: impl Fn() -> Result<(), E>,
    ) {
        let mut last_error = String::new();
        while let Some(()) = self.0.next().await {
            match sync() {
                Ok(()) => {
                    self.0.forget(&());
                    last_error.clear();
                }
                Err(error) => {
                    let error = full_text(&error);
                    if error != last_error {
                        tracing::error!(error, "{message}");
                    }
                    last_error = error;
                    self.0.add_rate_limited(());
                }
            }
            self.0.done(&());
        }
    }
}
