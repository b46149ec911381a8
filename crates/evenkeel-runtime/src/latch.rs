//! Something that happens once, and that many wait for.
//!
//! Those who wait go on in the order in which they began to wait. A `tokio::sync::watch` wakes them in an order that it draws,
//! by which no simulation could be repeated.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

/// Happens once. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Latch(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    set: AtomicBool,
    changed: Notify,
}

impl Latch {
    /// It has happened.
    pub fn set(&self) {
        self.0.set.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// Whether it has happened.
    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::SeqCst)
    }

    /// Waits until it has happened.
    pub async fn wait(&self) {
        // Registered before the look, so that what happens in between is not missed.
        let changed = self.0.changed.notified();
        if !self.is_set() {
            changed.await;
        }
    }
}
