//! Latch: an event that happens once, and that many tasks can wait for.
//!
//! Waiting tasks are woken in the order in which they began to wait. `tokio::sync::watch` wakes them in a
//! random order, so a simulation could not be repeated.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

/// One-time event. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Latch(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    set: AtomicBool,
    changed: Notify,
}

impl Latch {
    /// Sets the latch and wakes all waiting tasks.
    pub fn set(&self) {
        self.0.set.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// Returns whether the latch is set.
    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::SeqCst)
    }

    /// Waits until the latch is set.
    pub async fn wait(&self) {
        // Register before the check, so that no notification is missed in between.
        let changed = self.0.changed.notified();
        if !self.is_set() {
            changed.await;
        }
    }
}
