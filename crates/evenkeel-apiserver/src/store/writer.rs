//! Thread that commits, so that concurrent writers share one sync. While the thread waits for the disk, the next batch
//! accumulates.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::shared::Shared;

/// The store's thread. Its drop commits the queue and stops the thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("store".to_owned());
        let thread = thread.spawn(move || of_thread.run_guarded())?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
