//! Writes about waiting pods on their way. Those about one pod follow each other, and its binding follows them: what is written last
//! is what was found last.

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use hashbrown::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Cancelled when the write has been answered.
pub(crate) type Told = CancellationToken;

#[derive(Default)]
pub(crate) struct Telling {
    writes: FuturesUnordered<BoxFuture<'static, Arc<str>>>,
    /// The last write about each pod.
    last: HashMap<Arc<str>, Told>,
}

impl Telling {
    /// Sends a write about the pod with this uid, after those that are on their way.
    pub(crate) fn send(&mut self, uid: &str, write: impl Future<Output = ()> + Send + 'static) {
        let (uid, told): (Arc<str>, _) = (uid.into(), Told::new());
        let before = self.last.insert(Arc::clone(&uid), told.clone());
        self.writes.push(Box::pin(async move {
            if let Some(before) = before {
                before.cancelled().await;
            }
            write.await;
            told.cancel();
            uid
        }));
    }

    /// What to wait for before something else is written about the pod.
    pub(crate) fn about(&self, uid: &str) -> Option<Told> {
        self.last.get(uid).cloned()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Waits for the next answer; `None` when nothing is on its way.
    pub(crate) async fn answered(&mut self) -> Option<()> {
        let uid = self.writes.next().await?;
        if self.last.get(&uid).is_some_and(CancellationToken::is_cancelled) {
            self.last.remove(&uid);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Mutex, time::Duration};

    #[tokio::test(start_paused = true)]
    async fn writes_about_one_pod_follow_each_other() {
        let (mut telling, done) = (Telling::default(), Arc::new(Mutex::new(Vec::new())));
        for (uid, what, seconds) in [("p", "p1", 3), ("p", "p2", 1), ("q", "q1", 2)] {
            let done = Arc::clone(&done);
            telling.send(uid, async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                done.lock().unwrap().push(what);
            });
        }
        let told = telling.about("p").unwrap();
        while telling.answered().await.is_some() {
            let all = done.lock().unwrap().len() == 3;
            assert_eq!(told.is_cancelled(), all, "a binding waits for the last one");
        }
        assert_eq!(*done.lock().unwrap(), ["q1", "p1", "p2"]);
        assert!(telling.is_empty() && telling.about("p").is_none() && telling.last.is_empty());
    }
}
