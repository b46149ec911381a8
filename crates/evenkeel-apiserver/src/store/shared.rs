//! What all handles of a store share: the state, and the line of changes that wait for the log.

use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;

use super::index::IndexedResources;
use super::log::Log;
use super::state::{Staged, State};
use super::transaction::WriteError;
use super::watchers::Watchers;

/// How long lazy writes wait for another write to share its commit.
const LINGER: Duration = Duration::from_millis(2);

/// The state of a store, its log, and what is in line for it.
pub(super) struct Shared {
    pub(super) state: RwLock<State>,
    /// The resources that have an index.
    pub(super) indexed_resources: IndexedResources,
    /// Up to which revision everything is on disk (and in the rings).
    pub(super) settled: watch::Sender<u64>,
    pub(super) log: Option<Log>,
    /// Commits are made by the log's own thread; otherwise by whoever writes.
    pub(super) threaded: bool,
    pub(super) wake: std::sync::Condvar,
    pub(super) queue: Mutex<Queue>,
    /// Held while a batch is committed and shown by the one who wrote it, so that batches stay in order.
    pub(super) committing: Mutex<()>,
    /// Who watches what.
    pub(super) watchers: Watchers,
}

/// Changes in line for the log.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) events: Vec<Staged>,
    /// Somebody waits for what is in line.
    pub(super) urgent: bool,
    /// Batches of lazy writes under way.
    pub(super) batches: usize,
    pub(super) stop: bool,
    pub(super) failed: Option<Arc<str>>,
}

impl Shared {
    pub(super) fn new(
        state: State,
        log: Option<Log>,
        indexed_resources: IndexedResources,
        threaded: bool,
    ) -> Self {
        Self {
            indexed_resources,
            settled: watch::Sender::new(state.revision),
            state: RwLock::new(state),
            log,
            threaded,
            wake: Condvar::new(),
            queue: Mutex::default(),
            committing: Mutex::default(),
            watchers: Watchers::default(),
        }
    }

    /// Puts the changes of a transaction in line for the log, at once: the log writes a whole line in one commit. Called
    /// under the lock of the state, so that the line is in order of revision.
    pub(super) fn stage(&self, staged: Vec<Staged>) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).events.extend(staged);
    }

    /// Sees to it that lazy writes are committed although nobody waits for them.
    pub(super) fn commit_soon(&self) -> Result<(), WriteError> {
        let held = self.queue.lock().unwrap_or_else(PoisonError::into_inner).batches > 0;
        if self.threaded {
            self.wake.notify_one();
        } else if !held {
            return self.flush();
        }
        Ok(())
    }

    /// Commits and shows what is in line, on the caller's thread.
    pub(super) fn flush(&self) -> Result<(), WriteError> {
        let _in_order = self.committing.lock().unwrap_or_else(PoisonError::into_inner);
        let events = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(error) = &queue.failed {
                return Err(WriteError::Disk(error.clone()));
            }
            std::mem::take(&mut queue.events)
        };
        if let Err(error) = self.commit(&events) {
            self.queue.lock().unwrap_or_else(PoisonError::into_inner).failed = Some(error.clone());
            return Err(WriteError::Disk(error));
        }
        self.publish(&events);
        Ok(())
    }

    fn commit(&self, events: &[Staged]) -> Result<(), Arc<str>> {
        let Some(log) = &self.log else { return Ok(()) };
        if events.is_empty() {
            return Ok(());
        }
        log.commit(events.iter().map(|staged| (&*staged.resource_prefix, &*staged.event))).map_err(|error| {
            tracing::error!(%error, "the data folder cannot be written; no further write is accepted");
            error.to_string().into()
        })
    }

    /// Commits what gathers in the line until the store is dropped: the work of the log's thread.
    pub(super) fn run(&self) {
        loop {
            let events = {
                let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
                while queue.events.is_empty() && !queue.stop {
                    queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
                if queue.events.is_empty() {
                    return;
                }
                let waits = |queue: &mut Queue| !queue.urgent && !queue.stop;
                let (mut queue, _) = self
                    .wake
                    .wait_timeout_while(queue, LINGER, waits)
                    .unwrap_or_else(PoisonError::into_inner);
                queue.urgent = false;
                std::mem::take(&mut queue.events)
            };
            match self.commit(&events) {
                Ok(()) => self.publish(&events),
                Err(error) => {
                    self.queue.lock().unwrap_or_else(PoisonError::into_inner).failed = Some(error);
                    self.settled.send_modify(|_| ());
                    return;
                }
            }
        }
    }

    /// Locks the state.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows events to watches, now that they are on disk.
    fn publish(&self, events: &[Staged]) {
        let Some(last) = events.last() else { return };
        let mut signals: Vec<(&Arc<watch::Sender<u64>>, u64)> = Vec::new();
        for staged in events {
            let revision = staged.event.entry.revision;
            match signals.iter_mut().find(|(s, _)| Arc::ptr_eq(s, &staged.signal)) {
                Some((_, latest)) => *latest = revision,
                None => signals.push((&staged.signal, revision)),
            }
        }
        let raise = |sender: &watch::Sender<u64>, revision: u64| {
            sender.send_if_modified(|at| std::mem::replace(at, revision.max(*at)) < revision);
        };
        let scoped = self.watchers.record(events);
        raise(&self.settled, last.event.entry.revision);
        for signal in scoped {
            raise(&signal, last.event.entry.revision);
        }
        for (signal, revision) in signals {
            raise(signal, revision);
        }
    }
}
