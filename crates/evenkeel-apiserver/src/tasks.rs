//! Background tasks of the server, which end with it.

use std::sync::Arc;

use evenkeel_tasks::{Supervisor, TaskFailure};

/// Tasks of a server under their own supervisor. The server's health checks report failed tasks.
pub(crate) struct Tasks(evenkeel_tasks::Tasks);

impl Default for Tasks {
    fn default() -> Self {
        Self(evenkeel_tasks::Tasks::of(&Supervisor::default()))
    }
}

impl Tasks {
    /// Starts a task that runs until the server is dropped. It holds the server weakly, and may return only after the
    /// drop. After a panic, `factory` creates it again with backoff, and it reads its state from the store.
    pub(crate) fn spawn<F, Fut>(&self, name: &'static str, factory: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let factory = Arc::new(factory);
        self.0.spawn_restarting_until_cancelled(name, move || {
            let factory = Arc::clone(&factory);
            async move {
                factory().await;
                // The server is being dropped, which aborts the task.
                std::future::pending::<()>().await;
            }
        });
    }

    /// Starts work that ends within about a minute, and that holds no reference to the server. A panic is logged.
    pub(crate) fn spawn_brief(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn_finite("rest of a request", work);
    }

    /// Serves a stream that remains of a request. It holds nothing of the server's. A panic in it is logged.
    pub(crate) fn spawn_stream(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn_finite("stream", work);
    }

    /// Reports a part of the server that works beside the tasks, and cannot start anew, once it `failed`.
    pub(crate) fn report(
        &self,
        name: &'static str,
        failed: impl Future<Output = String> + Send + 'static,
    ) {
        let supervisor = self.0.supervisor().clone();
        self.0.spawn_until_cancelled(name, async move {
            let failure = TaskFailure { name: name.into(), reason: failed.await };
            supervisor.record(failure);
            std::future::pending::<()>().await;
        });
    }

    /// Waits for the failure of a task or a part that cannot restart.
    pub(crate) async fn failed(&self) -> TaskFailure {
        self.0.supervisor().failed().await
    }

    /// Checks the tasks. Returns an error with the name of a task that keeps panicking.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.0.supervisor().check()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.abort();
    }
}
