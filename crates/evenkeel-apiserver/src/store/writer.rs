//! Thread that commits, so that concurrent writers share one sync to disk. While the thread waits for the disk, the
//! queue collects the next batch.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::shared::Shared;

/// The store's thread. Dropping this commits the queue and stops the thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let shared_with_thread = shared.clone();
        let thread = std::thread::Builder::new().name("store".to_owned());
        let thread = thread.spawn(move || shared_with_thread.run_guarded())?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.stop();
        // The thread itself may drop the last handle of the store. It cannot wait for its own end.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
