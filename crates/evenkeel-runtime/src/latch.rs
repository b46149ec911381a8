//! Latch: an event that occurs once, and for which many tasks can wait.
//!
//! The latch wakes tasks in the order in which they started to wait. `tokio::sync::watch` wakes them in random order,
//! with which simulations would not be reproducible.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

/// One-time event. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Latch(Arc<Shared>);

/// State that the clones of the latch share.
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

    /// Returns whether both are clones of one latch.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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
