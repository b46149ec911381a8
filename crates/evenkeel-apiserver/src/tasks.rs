//! Background tasks of the server. They end when the server is dropped.

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
    /// Starts a task that runs until the server is dropped. The task may hold only a weak reference to the server.
    /// After a panic, `factory` creates the task again with backoff, and the task reads its state from the store.
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

    /// Creates a group of tasks that also end when the group is dropped.
    pub(crate) fn child(&self) -> Self {
        Self(self.0.child())
    }

    /// Starts work that ends within about a minute, and that holds no reference to the server. A panic is only logged.
    pub(crate) fn spawn_brief(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn_finite("rest of a request", work);
    }

    /// Starts the task of a stream that outlives its request. The task holds no reference to the server. A panic is
    /// only logged.
    pub(crate) fn spawn_stream(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn_finite("stream", work);
    }

    /// Watches a part of the server that is not a task and cannot restart. Records its failure when `failed` resolves.
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
