//! The log's thread: takes what has gathered while the last commit ran, and commits it as one.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{IndexedResources, Queue, Shared, Staged, State, WriteError};

/// How long lazy writes wait for another write to share its commit.
const LINGER: Duration = Duration::from_millis(2);

/// The thread; dropping it commits what is left and ends it.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let its = shared.clone();
        let thread =
            std::thread::Builder::new().name("store-log".to_owned()).spawn(move || its.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    pub(super) fn new(
        state: State,
        log: Option<super::log::Log>,
        indexed_resources: IndexedResources,
        threaded: bool,
    ) -> Self {
        Self {
            indexed_resources,
            settled: tokio::sync::watch::Sender::new(state.revision),
            state: std::sync::RwLock::new(state),
            log,
            threaded,
            wake: std::sync::Condvar::new(),
            queue: std::sync::Mutex::default(),
            committing: std::sync::Mutex::default(),
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

    fn run(&self) {
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
}
