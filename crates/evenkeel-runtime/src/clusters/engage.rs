//! Engaged clusters: each has a task that starts its caches and controllers, and stops them when it is left.

use super::{
    cluster::Cluster,
    decide::{Step, step},
};
use crate::{
    client::Transport,
    latch::Latch,
    manager::{Manager, RunnableGroup},
    operator::Result,
    tasks::Tasks,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Part of the manager's grace period that remains for the manager itself when it stops together with the clusters.
const OWN_GRACE: Duration = Duration::from_secs(1);

/// Clusters of one [provider](super::ClusterProvider), which adds and removes them here. Clones share them.
#[derive(Clone)]
pub struct Clusters {
    inner: Arc<Engagements>,
}

/// Declares the controllers of a cluster.
type Declare = Box<dyn Fn(&Cluster) + Send + Sync>;

struct Engagements {
    host: Manager,
    declare: Declare,
    /// Set once clusters may be engaged: when this process leads.
    started: Latch,
    state: Mutex<State>,
}

/// Engaged clusters and their tasks.
#[derive(Default)]
struct State {
    /// Tasks of the clusters, while this process leads.
    tasks: Option<Tasks>,
    members: BTreeMap<Arc<str>, Member>,
}

/// Cluster that is engaged, or that was left and whose task has not ended yet.
struct Member {
    /// Identity that the provider gave to the connection. `None` once the cluster is left.
    identity: Option<Arc<[u8]>>,
    /// Cancelled to leave the cluster.
    stop: CancellationToken,
    /// Set when the last task of this name has ended.
    ended: Latch,
    /// `None` until its controllers are declared.
    cluster: Option<Cluster>,
}

impl Clusters {
    pub(super) fn of(host: &Manager, declare: Declare) -> Self {
        let inner = Arc::new(Engagements {
            host: host.clone(),
            declare,
            started: Latch::default(),
            state: Mutex::default(),
        });
        let running = Arc::clone(&inner);
        host.add(RunnableGroup::LeaderElection, "clusters", move |context| async move {
            let tasks = Tasks::under(context.token().child_token());
            // When the lease is lost, this future is dropped.
            let _abort = tasks.abort_on_drop();
            running.lock().tasks = Some(tasks.clone());
            running.started.set();
            context.stopped().await;
            running.lock().tasks = None;
            tasks.join().await;
            Ok(())
        });
        Self { inner }
    }

    /// Engages a cluster: `connect` returns its transport, and its controllers start. If the cluster is already engaged with
    /// the same `identity`, nothing changes. With another identity, the new controllers start after the old ones have ended.
    ///
    /// Waits until this process leads. The identity may be a credential, so it is never logged.
    ///
    /// # Errors
    /// Fails if `connect` fails. The cluster is then unchanged.
    pub async fn engage<T, Fut>(
        &self,
        name: &str,
        identity: &[u8],
        connect: impl FnOnce() -> Fut + Send,
    ) -> Result<()>
    where
        T: Into<Transport>,
        Fut: Future<Output = Result<T>> + Send,
    {
        self.inner.started.wait().await;
        let step = {
            let state = self.inner.lock();
            let current = state.members.get(name).and_then(|member| member.identity.as_deref());
            step(current, identity)
        };
        if step == Step::Keep {
            return Ok(());
        }
        let transport = connect().await?.into();
        if step == Step::Replace {
            tracing::info!(cluster = name, "the connection of the cluster has changed");
        }
        self.inner.add(name, identity, transport);
        Ok(())
    }

    /// Leaves a cluster: its controllers end after their running passes, at the latest after the manager's grace period.
    /// Waiting keys are dropped, and its caches stop. Does nothing if the cluster is not engaged.
    pub fn leave(&self, name: &str) {
        let mut state = self.inner.lock();
        let left = state.members.get_mut(name).and_then(|member| {
            member.stop.cancel();
            member.identity.take()
        });
        drop(state);
        if left.is_some() {
            tracing::info!(cluster = name, "leaving the cluster");
        }
    }

    /// Returns whether a cluster is engaged.
    pub(super) fn is_engaged(&self, name: &str) -> bool {
        self.inner.lock().members.get(name).is_some_and(|member| member.identity.is_some())
    }

    /// Returns an engaged cluster. `None` before its controllers are declared.
    pub fn get(&self, name: &str) -> Option<Cluster> {
        let state = self.inner.lock();
        let member = state.members.get(name).filter(|member| member.identity.is_some())?;
        member.cluster.clone()
    }

    /// Returns the names of the engaged clusters, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        let state = self.inner.lock();
        let engaged = state.members.iter().filter(|(_, member)| member.identity.is_some());
        engaged.map(|(name, _)| Arc::clone(name)).collect()
    }
}

impl Engagements {
    /// Starts the task of a cluster, which replaces an older task of the same name. Does nothing while the manager stops.
    fn add(self: &Arc<Self>, name: &str, identity: &[u8], transport: Transport) {
        let name: Arc<str> = Arc::from(name);
        let mut state = self.lock();
        let Some(tasks) = state.tasks.clone() else { return };
        let (stop, ended) = (tasks.token().child_token(), Latch::default());
        let member = Member {
            identity: Some(Arc::from(identity)),
            stop: stop.clone(),
            ended: ended.clone(),
            cluster: None,
        };
        let predecessor = state.members.insert(Arc::clone(&name), member).map(|old| {
            old.stop.cancel();
            old.ended
        });
        drop(state);
        let (this, task) = (Arc::clone(self), format!("cluster {name}"));
        tasks.spawn_finite(task, async move {
            let _end = EndGuard { engagements: &this, name: &name, ended };
            if let Some(predecessor) = predecessor {
                // Two connections never work on one cluster at a time.
                predecessor.wait().await;
            }
            if !stop.is_cancelled() {
                this.run(&name, transport, &stop).await;
            }
        });
    }

    /// Runs the controllers of a cluster until `stop` is cancelled.
    async fn run(&self, name: &Arc<str>, transport: Transport, stop: &CancellationToken) {
        let member = self.host.of_cluster(name, transport);
        let cluster = Cluster::new(name, member.manager());
        (self.declare)(&cluster);
        let (caches, controllers) = (Tasks::new(), Tasks::new());
        let _abort = (caches.abort_on_drop(), controllers.abort_on_drop());
        member.start(&caches, &controllers);
        if let Some(engaged) = self.lock().members.get_mut(name)
            && !stop.is_cancelled()
        {
            engaged.cluster = Some(cluster);
        }
        tracing::info!(cluster = %name, "engaged the cluster");
        stop.cancelled().await;
        member.close();
        let grace = self.host.grace_period().saturating_sub(OWN_GRACE);
        controllers.shut_down(grace).await;
        caches.shut_down(OWN_GRACE).await;
        tracing::info!(cluster = %name, "left the cluster");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard that records the end of a cluster's task, in whatever way it ends.
struct EndGuard<'a> {
    engagements: &'a Engagements,
    name: &'a str,
    ended: Latch,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.engagements.lock();
        // A later task of the same name has its own latch.
        let is_last = |member: &Member| member.ended.is(&self.ended);
        let removed = match state.members.get(self.name).is_some_and(is_last) {
            true => state.members.remove(self.name),
            false => None,
        };
        drop(state);
        drop(removed);
        self.ended.set();
    }
}

impl std::fmt::Debug for Clusters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
