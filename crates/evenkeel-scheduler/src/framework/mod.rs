//! The extension points, under upstream's names (`k8s.io/kube-scheduler/framework`), for plugins of this crate and of its users.
//!
//! A plugin implements [`Plugin`] and, of the traits below, those of the points it takes part in, and says so in the `as_*`
//! methods. It joins a [`Profile`] with a weight.

mod change;
mod event;
mod extender;
mod on_the_way;
mod profile;
mod state;
mod verdict;
mod watch;

pub use change::{AnyObject, Change, Edit, Hint, ObjectChange};
pub use event::{Action, Interest, Resource};
pub use extender::{
    Extender, ExtenderError, ExtenderFiltered, ExtenderScores, LeftVictims, Victims,
};
pub use on_the_way::WaitingPod;
pub(crate) use on_the_way::{Answer, OnTheWay};
pub(crate) use profile::Point;
pub use profile::Profile;
pub use state::CycleState;
pub use verdict::{Filtered, Reason, Rejection, Severity};
pub use watch::Watched;
pub(crate) use watch::Watches;

use std::{any::Any, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{
    metrics::Metrics,
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
    schedule::{Cycle, Unfit},
};
use evenkeel_api::{View, time::Timestamp};
use evenkeel_runtime::{
    cache::{Cache, Caches},
    client::{ApiError, Client},
    clock::Clock,
    events::SeriesRecorder,
    plan::Failure,
    tasks::Tasks,
};
use prometheus::Registry;
use tokio::sync::mpsc::UnboundedSender;

/// The best score of a node, after [`Score::normalise`].
pub const MAX_NODE_SCORE: i64 = 100;

/// A future that a plugin returns.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What plugins may use beside what they are shown.
#[derive(Clone)]
pub struct Handle {
    /// The name of the profile that the plugin is part of.
    pub profile: Arc<str>,
    /// What the cluster looks like.
    pub caches: Caches,
    /// The time.
    pub clock: Clock,
    /// Writes to the API server.
    pub client: Client,
    /// Runs what goes on beside the attempts.
    pub tasks: Tasks,
    /// Tells users what was done.
    pub recorder: SeriesRecorder,
    /// Where plugins of one's own put their metrics.
    pub registry: Registry,
    pub(crate) watches: Arc<Watches>,
    pub(crate) way: OnTheWay,
    pub(crate) commands: UnboundedSender<Command>,
    pub(crate) metrics: Metrics,
    /// How much of one kind is done at the same time.
    pub(crate) parallelism: usize,
}

/// What plugins and bindings ask of the loop.
#[derive(Debug)]
pub(crate) enum Command {
    /// Try this pod, whatever rejected it.
    Activate(Arc<str>),
    /// What happens from now on cannot matter to this pod, which is on its way.
    Done(Arc<str>),
}

impl Handle {
    /// The objects of a kind. They are all there before the first pod is tried, and each change of one is asked about in
    /// [`Plugin::hint`].
    pub fn watch<V: Watched>(&self) -> Cache<V> {
        self.watches.watch(&self.caches)
    }

    /// The objects of a kind. They are all there before the first pod is tried; no plugin is asked about their changes.
    pub fn filled<V: View>(&self) -> Cache<V> {
        self.watches.filled(&self.caches)
    }

    /// What the plugins of all profiles know together, one of each type.
    pub(crate) fn shared<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        self.watches.shared()
    }

    /// The pods that wait for permission to be bound.
    pub fn waiting_pods(&self) -> Vec<WaitingPod> {
        self.way.all_waiting()
    }

    /// The pod with this uid, if it waits for permission to be bound.
    pub fn waiting_pod(&self, uid: &str) -> Option<WaitingPod> {
        self.way.waiting(uid)
    }

    /// Calls a pod back that is on its way to a node, for the sake of another; whether that was in time.
    pub fn preempt(&self, uid: &str, plugin: &'static str) -> bool {
        self.way.preempt(uid, plugin)
    }

    /// Has a waiting pod tried again at once.
    pub fn activate(&self, uid: &str) {
        // Sending fails once the scheduler has ended; then nobody needs to know.
        drop(self.commands.send(Command::Activate(uid.into())));
    }
}

/// What every plugin is.
pub trait Plugin: Send + Sync + 'static {
    /// Its name, as configuration, metrics and events have it.
    fn name(&self) -> &'static str;

    /// Called once, before the scheduler starts. A plugin that looks at more than pods and nodes asks for its caches here.
    fn connect(&self, handle: &Handle) {
        let _ = handle;
    }

    /// The changes that may let a pod in that this plugin rejected; it is asked about no others. Upstream's
    /// `EventsToRegister`. Whoever does not say is asked about everything.
    fn events(&self) -> Vec<Interest> {
        Interest::everything()
    }

    /// Whether a pod that this plugin rejected is worth another try after `change`. Upstream's queueing hints.
    fn hint(&self, pod: &PodInfo, change: &Change) -> Hint {
        let (_, _) = (pod, change);
        Hint::Queue
    }

    /// It says whose turn it is.
    fn as_queue_sort(&self) -> Option<&dyn QueueSort> {
        None
    }
    /// It takes part in [`PreEnqueue`].
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        None
    }
    /// It takes part in [`PreFilter`].
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        None
    }
    /// It takes part in [`Filter`].
    fn as_filter(&self) -> Option<&dyn Filter> {
        None
    }
    /// It takes part in [`PostFilter`].
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        None
    }
    /// It takes part in [`PreScore`].
    fn as_pre_score(&self) -> Option<&dyn PreScore> {
        None
    }
    /// It takes part in [`Score`].
    fn as_score(&self) -> Option<&dyn Score> {
        None
    }
    /// It takes part in [`Reserve`].
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        None
    }
    /// It takes part in [`Permit`].
    fn as_permit(&self) -> Option<&dyn Permit> {
        None
    }
    /// It takes part in [`PreBind`].
    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        None
    }
    /// It takes part in [`Bind`].
    fn as_bind(&self) -> Option<&dyn Bind> {
        None
    }
    /// It takes part in [`PostBind`].
    fn as_post_bind(&self) -> Option<&dyn PostBind> {
        None
    }
}

/// Where a pod stands in the queue; lower ones are tried first.
pub type SortKey = [i64; 2];

/// Says whose turn it is. There is one for all profiles: that of the first.
pub trait QueueSort: Plugin {
    /// Where the pod stands that came, or came back from its last attempt, at `queued`. Among equals the first to come is first.
    fn key(&self, pod: &PodInfo, queued: Timestamp) -> SortKey;
}

/// Before a pod may enter the active queue.
pub trait PreEnqueue: Plugin {
    /// A rejected pod is held back until a change for which [`Plugin::hint`] says otherwise.
    fn pre_enqueue(&self, pod: &PodInfo) -> Filtered;
}

/// What a [`PreFilter`] leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreFiltered {
    /// Every node is to be looked at.
    All,
    /// This plugin has nothing to say about this pod: its filter is left out.
    Skip,
    /// Only these nodes come into question.
    Only(Vec<Arc<str>>),
}

/// Once for each attempt, before nodes are looked at.
pub trait PreFilter: Plugin {
    /// Works out what the filter needs, into `state`.
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFiltered, Rejection>;

    /// Brings `state` to what it would be with `other` on `node` as well. Not called when the plugin was skipped.
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>) {
        let (_, _, _, _) = (state, pod, other, node);
    }

    /// Brings `state` to what it would be without `other`, which is on `node`. Not called when the plugin was skipped.
    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: NodeRef<'_>,
    ) {
        let (_, _, _, _) = (state, pod, other, node);
    }
}

/// For each node, until one plugin rejects it.
pub trait Filter: Plugin {
    /// Whether the pod can run there.
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> Filtered;
}

/// What a [`PostFilter`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PostFiltered {
    /// Node on which room is being made; empty where none can be, so that the pod waits for none any more. `None` leaves
    /// that as it is.
    pub nominated: Option<Arc<str>>,
    /// What to add to the message about the failed attempt.
    pub message: String,
    /// No other plugin needs to be asked.
    pub done: bool,
}

/// What a [`PostFilter`] would do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Preview {
    /// What it would add to the message about the failed attempt.
    pub message: String,
    /// Pods that it would have leave a node: it takes any of these.
    pub victims: Vec<Victims>,
    /// No other plugin would be asked; none is, either, where there are victims.
    pub done: bool,
}

/// When no node was left: preemption and the like.
pub trait PostFilter: Plugin {
    /// Looks for a way out. `state` is as the filters had it, `unfit` says why each node was rejected. What is changed of the
    /// nodes must be undone. Nothing else is tried meanwhile: what takes long belongs into a task.
    fn post_filter<'a>(
        &'a self,
        cycle: &'a mut Cycle<'_>,
        state: &'a CycleState,
        unfit: &'a Unfit,
    ) -> Pending<'a, PostFiltered>;

    /// What [`PostFilter::post_filter`] would do, for those who only look: nothing, unless the plugin says it.
    fn preview(&self, _: &mut Cycle<'_>, _: &CycleState, _: &Unfit) -> Preview {
        Preview::default()
    }
}

/// What a [`PreScore`] leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreScored {
    /// Every node is to be scored.
    All,
    /// This plugin has nothing to say about this pod: its score is left out.
    Skip,
    /// Every node would have this score once normalised, so that none needs to be scored.
    Same(i64),
}

/// Once for each attempt with more than one node left.
pub trait PreScore: Plugin {
    /// Works out what the score needs, into `state`; `feasible` are the nodes that are left.
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
        feasible: &[NodeRef<'_>],
    ) -> PreScored;
}

/// For each node that is left.
pub trait Score: Plugin {
    /// How good the node is.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> i64;

    /// How good each of `nodes` is, in their order. For plugins that fetch from `state` once for all nodes.
    fn score_all(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        scores.extend(nodes.iter().map(|node| self.score(state, pod, *node)));
    }

    /// Brings the scores of `nodes`, in their order, into `0..=MAX_NODE_SCORE`.
    fn normalise(&self, state: &CycleState, nodes: &[NodeRef<'_>], scores: &mut [i64]) {
        let (_, _, _) = (state, nodes, scores);
    }
}

/// When a node was chosen and the pod assumed there. What fails later is undone in reverse order.
pub trait Reserve: Plugin {
    /// Sets something aside.
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> Filtered;
    /// Gives it back; also called when it was never set aside.
    fn unreserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str);
}

/// What a [`Permit`] says.
pub enum Permitted {
    /// Go on.
    Yes,
    /// Wait until the plugin allows it ([`Handle::waiting_pod`]), at most so long (and at most 15 minutes); scheduling of
    /// others goes on.
    Wait(Duration),
    /// Don't.
    No(Rejection),
}

/// The last word before binding.
pub trait Permit: Plugin {
    /// Whether the pod may be bound now.
    fn permit(&self, state: &CycleState, pod: &PodInfo, node: &str) -> Permitted;
}

/// Whether a [`PreBind`] has anything to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreFlight {
    /// No.
    Skip,
    /// Yes; `parallel` if it can be done beside what other such plugins do.
    Act {
        /// Beside others.
        parallel: bool,
    },
}

/// Before binding, beside the scheduling of other pods.
pub trait PreBind: Plugin {
    /// Whether there is anything to do for this pod. Must be quick.
    fn pre_flight(&self, pod: &PodInfo, node: &str) -> PreFlight {
        let (_, _) = (pod, node);
        PreFlight::Act { parallel: false }
    }

    /// Does what must be done before the pod runs there.
    fn pre_bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> Pending<'a, Result<(), Unprepared>>;
}

/// Why a pod could not be prepared for its node.
#[derive(Debug, thiserror::Error)]
pub enum Unprepared {
    /// The API server did not answer, or refused.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// An object could not be changed.
    #[error("{0}")]
    Write(#[from] Failure),
    /// Something else is in the way.
    #[error("{0}")]
    Refused(String),
}

/// Binds a pod. The first plugin that does not decline is the last asked.
pub trait Bind: Plugin {
    /// `Ok(false)` declines.
    fn bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> Pending<'a, Result<bool, ApiError>>;
}

/// After a pod was bound.
pub trait PostBind: Plugin {
    /// Takes notice.
    fn post_bind(&self, pod: &PodInfo, node: &str);
}
