//! What is done again and again for a server, under upstream's names of queues: files read, settings made, the cluster's word
//! taken.

use crate::{
    client::full_text,
    queue::{self, Priority, Queue},
};
use std::error::Error;

/// Passes of one kind. Clones ask for the same ones.
#[derive(Clone)]
pub(super) struct Passes(Queue<()>);

impl Passes {
    /// Counted under this name where there is something to count in.
    pub(super) fn new(name: &str, metrics: Option<&queue::Metrics>) -> Self {
        Self(metrics.map_or_else(Queue::unnamed, |metrics| Queue::new(name, metrics)))
    }

    /// Asks for a pass. Several that were asked for before it begins are one.
    pub(super) fn ask(&self) {
        self.0.add((), Priority::NORMAL);
    }

    /// Does what is asked for, until dropped; what fails again after a back-off, and `trouble` is told when the reason is another
    /// one than before.
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
