//! The one place where the server starts work of its own, beside its connections.

use std::sync::{Mutex, PoisonError};

use tokio::task::AbortHandle;

/// Work that goes on as long as the server is there. Tasks hold the server weakly, and end with it.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Vec<(&'static str, AbortHandle)>>);

impl Tasks {
    /// Starts a task that runs until the server is dropped.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        #[expect(clippy::disallowed_methods, reason = "this is the server's one place for it")]
        let task = tokio::spawn(work).abort_handle();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name, task));
    }

    /// Starts work that ends by itself within seconds, and holds nothing of the server's.
    pub(crate) fn spawn_brief(&self, work: impl Future<Output = ()> + Send + 'static) {
        #[expect(clippy::disallowed_methods, reason = "this is the server's one place for it")]
        drop(tokio::spawn(work));
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for (name, task) in self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            tracing::debug!(task = name, "a task of the server ends with it");
            task.abort();
        }
    }
}
