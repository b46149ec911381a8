//! Work that keeps a core busy for long.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs work that keeps a core busy, such as encoding many megabytes. On a runtime with several threads, other tasks
/// continue on another thread. Otherwise, as many such calls as the runtime has threads would block all tasks, health
/// checks included. On a runtime of one thread, as in simulations, the work blocks this thread.
///
/// ```
/// assert_eq!(evenkeel_tasks::run_busy(|| 6 * 7), 42);
/// ```
pub fn run_busy<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tasks;
    use std::{sync::mpsc, time::Duration};
    use tokio::sync::oneshot;

    /// All threads of the runtime are busy with work that waits for another task.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on() {
        let (sender, receiver) = mpsc::channel();
        let (tasks, (found, outcome)) = (Tasks::new(), oneshot::channel());
        tasks.spawn_finite("busy", async move {
            found.send(run_busy(move || receiver.recv())).unwrap();
        });
        tasks.spawn_finite("other", async move { sender.send("done").unwrap() });
        assert_eq!(outcome.await.unwrap(), Ok("done"));
        assert!(tasks.shut_down(Duration::from_secs(10)).await.is_empty());
    }
}
