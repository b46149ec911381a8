//! The log's thread: takes what has gathered while the last commit ran, and commits it as one.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use super::shared::Shared;

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
