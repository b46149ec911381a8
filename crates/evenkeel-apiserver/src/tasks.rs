//! The one place where the server starts work of its own, beside its connections.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};

use futures::FutureExt as _;
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

    /// Starts work that ends by itself within seconds, and holds nothing of the server's. A panic in it is logged.
    pub(crate) fn spawn_brief(&self, work: impl Future<Output = ()> + Send + 'static) {
        let logged = async {
            if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
                tracing::error!(panic = panic_text(&*panic), "a task of a request panicked");
            }
        };
        #[expect(clippy::disallowed_methods, reason = "this is the server's one place for it")]
        drop(tokio::spawn(logged));
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for (name, task) in self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            tracing::debug!(task = name, "a task of the server ends with it");
            task.abort();
        }
    }
}
