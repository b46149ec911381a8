//! Channel of one value that changes, with the interface of `tokio::sync::watch`.
//!
//! A change wakes the tasks that wait for it in the order in which they started to wait. `tokio::sync::watch` wakes
//! them in random order, which would make simulations irreproducible.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::{sync::Notify, task::coop::consume_budget};

/// Owner of the value. Tasks that wait learn that it is dropped.
pub struct Sender<T>(Arc<Shared<T>>);

/// Receiver of a [`Sender`]'s value. It has seen the value at its creation, and each value that it returned since.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Number of the last change that this receiver has seen.
    seen: u64,
}

/// State that the sender and the receivers share.
struct Shared<T> {
    value: RwLock<T>,
    /// Number of changes so far. It changes while the value is locked, and is read without the lock.
    changes: AtomicU64,
    is_closed: AtomicBool,
    changed: Notify,
}

/// The sender was dropped, so its value does not change any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sender was dropped")]
pub struct Closed;

/// The value, which does not change as long as this exists.
pub struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Creates a sender with this value, and a receiver.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.value.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
}

impl<T> Sender<T> {
    /// Creates a sender with this value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: RwLock::new(value),
            changes: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            changed: Notify::new(),
        }))
    }

    /// Returns whether all receivers were dropped.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Returns a receiver, which has seen the current value.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.changes();
        Receiver { shared: Arc::clone(&self.0), seen }
    }

    /// Returns the value. Drop it before the value is changed.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.read())
    }

    /// Replaces the value, and returns the previous one.
    pub fn send_replace(&self, value: T) -> T {
        let mut former = value;
        self.send_modify(|value| std::mem::swap(value, &mut former));
        former
    }

    /// Changes the value.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Calls `change` with the value, and notifies receivers if `change` returns true. Returns the result of `change`.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.0.write();
        if !change(&mut value) {
            return false;
        }
        self.0.changes.fetch_add(1, Ordering::SeqCst);
        drop(value);
        self.0.changed.notify_waiters();
        true
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

impl<T> Receiver<T> {
    /// Returns the value. Drop it before the value is changed.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// Returns the value, and marks it as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.read();
        self.seen = self.shared.changes();
        Ref(value)
    }

    /// Marks the current value as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.changes();
    }

    /// Waits until the value changes, or has changed since it was last seen.
    ///
    /// # Errors
    /// Fails if the sender was dropped without such a change.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        consume_budget().await;
        loop {
            // Register before the check, so that no notification is missed in between.
            let changed = self.shared.changed.notified();
            let is_closed = self.shared.is_closed();
            let changes = self.shared.changes();
            if changes != self.seen {
                self.seen = changes;
                return Ok(());
            }
            if is_closed {
                return Err(Closed);
            }
            changed.await;
        }
    }

    /// Waits until `holds` returns true for the value, and returns the value.
    ///
    /// # Errors
    /// Fails if the sender was dropped, and `holds` returns false for its last value.
    pub async fn wait_for(
        &mut self,
        mut holds: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, Closed> {
        consume_budget().await;
        loop {
            let changed = self.shared.changed.notified();
            let is_closed = self.shared.is_closed();
            {
                let value = self.shared.read();
                if holds(&value) {
                    self.seen = self.shared.changes();
                    return Ok(Ref(value));
                }
            }
            if is_closed {
                return Err(Closed);
            }
            changed.await;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&*self.0.read()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&*self.shared.read()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn a_change_wakes_tasks_in_the_order_in_which_they_wait() {
        const TASKS: usize = 40;
        let (sender, order) = (Sender::new(0), Arc::new(Mutex::new(Vec::new())));
        let tasks = crate::Tasks::new();
        for index in 0..TASKS {
            let (mut receiver, order) = (sender.subscribe(), Arc::clone(&order));
            tasks.spawn_finite("waiting", async move {
                while receiver.changed().await.is_ok() {
                    order.lock().unwrap().push(index);
                }
            });
        }
        for value in 1..4 {
            tokio::task::yield_now().await;
            sender.send_replace(value);
            tokio::task::yield_now().await;
            assert_eq!(std::mem::take(&mut *order.lock().unwrap()), Vec::from_iter(0..TASKS));
        }
        drop(sender);
        tasks.join().await;
    }

    fn seen(receiver: &mut Receiver<u32>, wanted: u32) -> Option<Result<u32, Closed>> {
        let found = receiver.wait_for(|value| *value == wanted).now_or_never();
        found.map(|found| found.map(|value| *value))
    }

    #[test]
    fn a_receiver_sees_each_change_once_and_the_end() {
        let (sender, mut receiver) = channel(1);
        assert_eq!(receiver.changed().now_or_never(), None);
        assert_eq!(sender.send_replace(2), 1);
        assert_eq!(*receiver.borrow(), 2);
        assert_eq!(receiver.changed().now_or_never(), Some(Ok(())));
        assert_eq!(receiver.changed().now_or_never(), None);
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(receiver.changed().now_or_never(), None, "nothing changed");
        sender.send_modify(|value| *value = 3);
        assert_eq!(seen(&mut receiver, 2), None);
        assert_eq!(seen(&mut receiver, 3), Some(Ok(3)));
        sender.send_modify(|value| *value = 4);
        receiver.mark_unchanged();
        assert_eq!(receiver.changed().now_or_never(), None, "it is marked as seen");
        sender.send_modify(|value| *value = 5);
        drop(sender);
        assert_eq!(receiver.changed().now_or_never(), Some(Ok(())), "the change came before");
        assert_eq!(receiver.changed().now_or_never(), Some(Err(Closed)));
        assert_eq!(seen(&mut receiver, 5), Some(Ok(5)));
        assert_eq!(seen(&mut receiver, 6), Some(Err(Closed)));
    }
}
