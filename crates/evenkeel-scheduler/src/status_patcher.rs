//! StatusPatcher: concurrent patches of pod statuses. Patches of one pod run in order, and its binding waits for them,
//! so that the newest state is written last.

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use hashbrown::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Token that is cancelled once the API server has responded to the patch.
pub(crate) type Patched = CancellationToken;

/// Patches of pod statuses that are pending or running.
#[derive(Default)]
pub(crate) struct StatusPatcher {
    /// Each resolves to the uid of its pod.
    patches: FuturesUnordered<BoxFuture<'static, Arc<str>>>,
    /// Last patch of each pod, by uid.
    last_patches: HashMap<Arc<str>, Patched>,
}

impl StatusPatcher {
    /// Sends a patch for the pod with this uid after the pod's earlier patches.
    pub(crate) fn send(&mut self, uid: &str, patch: impl Future<Output = ()> + Send + 'static) {
        let (uid, patched): (Arc<str>, _) = (uid.into(), Patched::new());
        let previous = self.last_patches.insert(Arc::clone(&uid), patched.clone());
        self.patches.push(Box::pin(async move {
            if let Some(previous) = previous {
                previous.cancelled().await;
            }
            patch.await;
            patched.cancel();
            uid
        }));
    }

    /// Returns the pod's last patch, if the API server has not responded to it yet.
    pub(crate) fn pending_patch(&self, uid: &str) -> Option<Patched> {
        self.last_patches.get(uid).cloned()
    }

    /// Returns whether no patch is pending or running.
    pub(crate) fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    /// Waits until a patch has finished. Returns `None` if none is pending.
    pub(crate) async fn next_finished(&mut self) -> Option<()> {
        let uid = self.patches.next().await?;
        if self.last_patches.get(&uid).is_some_and(CancellationToken::is_cancelled) {
            self.last_patches.remove(&uid);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Mutex, time::Duration};

    #[tokio::test(start_paused = true)]
    async fn patches_of_one_pod_run_in_order() {
        let (mut status_patcher, done) =
            (StatusPatcher::default(), Arc::new(Mutex::new(Vec::new())));
        for (uid, patch, seconds) in [("p", "p1", 3), ("p", "p2", 1), ("q", "q1", 2)] {
            let done = Arc::clone(&done);
            status_patcher.send(uid, async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                done.lock().unwrap().push(patch);
            });
        }
        let patched = status_patcher.pending_patch("p").unwrap();
        while status_patcher.next_finished().await.is_some() {
            let all_done = done.lock().unwrap().len() == 3;
            assert_eq!(patched.is_cancelled(), all_done, "a binding waits for the last one");
        }
        assert_eq!(*done.lock().unwrap(), ["q1", "p1", "p2"]);
        assert!(
            status_patcher.is_empty()
                && status_patcher.pending_patch("p").is_none()
                && status_patcher.last_patches.is_empty()
        );
    }
}
