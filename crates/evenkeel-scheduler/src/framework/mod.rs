//! Scheduling framework: extension points under upstream's names (`k8s.io/kube-scheduler/framework`).
//!
//! A plugin implements [`Plugin`] and one trait for each of its extension points, and returns itself from the matching
//! `as_*` methods. A [`Profile`] holds plugins with their weights.

mod change;
mod event;
mod extender;
mod guard;
mod nominating_info;
mod profile;
mod state;
mod status;
mod waiting_pods;
mod watch;

pub use change::{AnyObject, Change, Delta, ObjectChange, QueueingHint};
pub use event::{ActionType, ClusterEvent, EventResource};
pub use extender::{
    Candidate, Extender, ExtenderError, ExtenderFiltered, ExtenderScores, MetaVictims,
};
pub(crate) use guard::{catch_plugin_panic, catch_plugin_panic_async};
pub use nominating_info::NominatingInfo;
pub use profile::{ExtensionPoint, Profile};
pub use state::CycleState;
pub(crate) use status::PluginRejection;
pub use status::{Code, Reason, Status, StatusResult};
pub use waiting_pods::WaitingPod;
pub(crate) use waiting_pods::{PermitDecision, WaitingPods};
pub use watch::Watched;
pub(crate) use watch::Watches;

use std::{any::Any, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{
    metrics::Metrics,
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
    schedule::{Cycle, FitError},
};
use evenkeel_api::{View, time::Timestamp};
use evenkeel_runtime::{
    cache::{Cache, Caches},
    client::{ApiError, Client},
    clock::Clock,
    events::SeriesEventRecorder,
    plan::Failure,
    tasks::Tasks,
};
use prometheus::Registry;
use tokio::sync::mpsc::UnboundedSender;

/// Upper bound of a node's score after [`Score::normalize_score`].
pub const MAX_NODE_SCORE: i64 = 100;

/// Future returned by a plugin.
pub type PluginFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A plugin's access to the scheduler and the cluster.
///
/// Upstream: `framework.Handle`.
#[derive(Clone)]
pub struct Handle {
    /// `schedulerName` of the plugin's profile.
    pub profile: Arc<str>,
    /// Caches of the cluster's objects.
    pub caches: Caches,
    /// Clock of the scheduler. Virtual in tests.
    pub clock: Clock,
    /// Client of the API server.
    pub client: Client,
    /// Task spawner. Its background tasks end with the scheduler.
    pub tasks: Tasks,
    /// Recorder of events about objects.
    pub recorder: SeriesEventRecorder,
    /// Registry for the metrics of out-of-tree plugins.
    pub registry: Registry,
    pub(crate) watches: Arc<Watches>,
    pub(crate) waiting_pods: WaitingPods,
    pub(crate) commands: UnboundedSender<Command>,
    pub(crate) metrics: Metrics,
    /// Maximum number of victims that one preemptor deletes concurrently (`parallelism` of the configuration).
    pub(crate) parallelism: usize,
}

/// Message of a plugin or a binding cycle to the scheduling loop.
#[derive(Debug)]
pub(crate) enum Command {
    /// Move the pod with this uid to the active queue, regardless of the plugins that rejected it.
    Activate(Arc<str>),
    /// Stop recording in-flight events for the pod with this uid.
    Done(Arc<str>),
}

impl Handle {
    /// Returns the cache of a kind. The queue calls [`Plugin::queueing_hint`] on changes of its objects. The cache is
    /// synced before the first pod is scheduled.
    pub fn watch<V: Watched>(&self) -> Cache<V> {
        self.watches.watch(&self.caches)
    }

    /// Returns the cache of a kind whose changes requeue no pods. The cache is synced before the first pod is
    /// scheduled.
    pub fn lister<V: View>(&self) -> Cache<V> {
        self.watches.lister(&self.caches)
    }

    /// Returns the state of type `T` that the plugins of all profiles share. The first call creates its default.
    pub(crate) fn shared<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        self.watches.shared()
    }

    /// Returns the pods whose binding a [`Permit`] plugin delays.
    ///
    /// Upstream: `IterateOverWaitingPods`.
    pub fn waiting_pods(&self) -> Vec<WaitingPod> {
        self.waiting_pods.list()
    }

    /// Returns the pod with this uid if a [`Permit`] plugin delays its binding.
    ///
    /// Upstream: `GetWaitingPod`.
    pub fn waiting_pod(&self, uid: &str) -> Option<WaitingPod> {
        self.waiting_pods.get(uid)
    }

    /// Rejects a pod in Permit or PreBind, so that preemption need not delete it. Returns whether the pod was rejected.
    /// A pod whose binding has begun cannot be rejected.
    pub fn preempt(&self, uid: &str, plugin: &'static str) -> bool {
        self.waiting_pods.preempt_pod(uid, plugin)
    }

    /// Moves an unschedulable pod to the active queue immediately. No other pod is affected.
    ///
    /// Upstream: `Activate`.
    pub fn activate(&self, uid: &str) {
        // The send only fails after the scheduler has stopped.
        drop(self.commands.send(Command::Activate(uid.into())));
    }
}

/// Base trait of all plugins.
pub trait Plugin: Send + Sync + 'static {
    /// Returns the plugin's name in the configuration, metrics and events.
    fn name(&self) -> &'static str;

    /// Gives the plugin its access to the scheduler, once before the scheduler starts. The plugin requests caches of
    /// kinds other than pods and nodes from `handle` ([`Handle::watch`], [`Handle::lister`]).
    fn connect(&self, handle: &Handle) {
        let _ = handle;
    }

    /// Returns the cluster events that may make a pod schedulable after this plugin rejected it. Default: every event.
    ///
    /// Upstream: `EventsToRegister`.
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        ClusterEvent::everything()
    }

    /// Returns `Queue` if `change` may make `pod` schedulable. This plugin rejected the pod before. The queue calls
    /// this method only for changes that match [`Plugin::events_to_register`]. Default: `Queue`.
    ///
    /// Upstream: `QueueingHintFn`.
    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        let (_, _) = (pod, change);
        QueueingHint::Queue
    }

    /// Returns the plugin if it implements [`QueueSort`].
    fn as_queue_sort(&self) -> Option<&dyn QueueSort> {
        None
    }
    /// Returns the plugin if it implements [`PreEnqueue`].
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        None
    }
    /// Returns the plugin if it implements [`PreFilter`].
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        None
    }
    /// Returns the plugin if it implements [`Filter`].
    fn as_filter(&self) -> Option<&dyn Filter> {
        None
    }
    /// Returns the plugin if it implements [`PostFilter`].
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        None
    }
    /// Returns the plugin if it implements [`PreScore`].
    fn as_pre_score(&self) -> Option<&dyn PreScore> {
        None
    }
    /// Returns the plugin if it implements [`Score`].
    fn as_score(&self) -> Option<&dyn Score> {
        None
    }
    /// Returns the plugin if it implements [`Reserve`].
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        None
    }
    /// Returns the plugin if it implements [`Permit`].
    fn as_permit(&self) -> Option<&dyn Permit> {
        None
    }
    /// Returns the plugin if it implements [`PreBind`].
    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        None
    }
    /// Returns the plugin if it implements [`Bind`].
    fn as_bind(&self) -> Option<&dyn Bind> {
        None
    }
    /// Returns the plugin if it implements [`PostBind`].
    fn as_post_bind(&self) -> Option<&dyn PostBind> {
        None
    }
}

/// Sort key of a pod in the active queue. The pod with the lowest key is popped first.
pub type SortKey = [i64; 2];

/// Orders the active queue. All profiles use the plugin of the first profile.
pub trait QueueSort: Plugin {
    /// Returns the sort key of a pod that entered the queue at `queued`. Among pods with equal keys, the one that
    /// entered first is popped first.
    ///
    /// Upstream: `Less`.
    fn sort_key(&self, pod: &PodInfo, queued: Timestamp) -> SortKey;
}

/// Runs before a pod enters the active queue.
pub trait PreEnqueue: Plugin {
    /// Returns an error to gate the pod. A gated pod stays out of the active queue until an event for which
    /// [`Plugin::queueing_hint`] returns `Queue`.
    fn pre_enqueue(&self, pod: &PodInfo) -> StatusResult;
}

/// Result of a [`PreFilter`]: the nodes to evaluate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreFilterResult {
    /// Evaluate every node.
    All,
    /// Skip the plugin's filter for this pod.
    Skip,
    /// Evaluate only the nodes with these names.
    Only(Vec<Arc<str>>),
}

/// Runs once per scheduling attempt, before the filters.
pub trait PreFilter: Plugin {
    /// Computes the data that the plugin's filter needs about all nodes, and stores them in `state`.
    ///
    /// # Errors
    /// Returns the status with which the plugin rejects the pod on all nodes.
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status>;

    /// Updates `state` as if `other` also ran on `node`. The framework does not call plugins whose PreFilter returned
    /// [`PreFilterResult::Skip`].
    ///
    /// Upstream: `PreFilterExtensions.AddPod`.
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>) {
        let (_, _, _, _) = (state, pod, other, node);
    }

    /// Updates `state` as if `other` no longer ran on `node`. The framework does not call plugins whose PreFilter
    /// returned [`PreFilterResult::Skip`].
    ///
    /// Upstream: `PreFilterExtensions.RemovePod`.
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

/// Runs for each node until a plugin rejects it.
pub trait Filter: Plugin {
    /// Returns an error if the pod cannot run on the node.
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> StatusResult;
}

/// Result of a [`PostFilter`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PostFilterResult {
    /// Change of the pod's nomination.
    pub nominating_info: NominatingInfo,
    /// Text to append to the message of the failed attempt.
    pub message: String,
    /// Whether to skip the remaining PostFilter plugins.
    pub done: bool,
}

/// Decision of a [`PostFilter`] before the plugin acts on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PostFilterPlan {
    /// The result, provided that extenders and the API server agree.
    pub result: PostFilterResult,
    /// Candidates for preemption that extenders may filter. The plugin preempts on the best of those that remain.
    pub candidates: Vec<Candidate>,
}

/// Runs when no node is feasible, to make the pod schedulable, for example by preemption.
pub trait PostFilter: Plugin {
    /// Decides without side effects how to make the pod schedulable. `state` is the state that the filters read, and
    /// `fit_error` holds the status of each node. The plugin restores the nodes that it changes. Default: no result.
    fn plan(&self, _: &mut Cycle<'_>, _: &CycleState, _: &FitError) -> PostFilterPlan {
        PostFilterPlan::default()
    }

    /// Decides like [`PostFilter::plan`] and acts on the decision. No other pod is scheduled until it returns, so
    /// the plugin spawns a task for slow work.
    fn post_filter<'a>(
        &'a self,
        cycle: &'a mut Cycle<'_>,
        state: &'a CycleState,
        fit_error: &'a FitError,
    ) -> PluginFuture<'a, PostFilterResult>;
}

/// Result of a [`PreScore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreScoreResult {
    /// Score every node.
    All,
    /// Skip the plugin's score for this pod.
    Skip,
    /// Give every node this normalized score, without calling [`Score::score`].
    Same(i64),
}

/// Runs once per scheduling attempt that finds more than one feasible node.
pub trait PreScore: Plugin {
    /// Computes the data that the plugin's score needs about all nodes, and stores them in `state`. `feasible` are the
    /// nodes to score.
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
        feasible: &[NodeRef<'_>],
    ) -> PreScoreResult;
}

/// Runs for each feasible node.
pub trait Score: Plugin {
    /// Returns the node's score, in any range. [`Score::normalize_score`] scales it.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> i64;

    /// Appends the score of each of `nodes` to `scores`, in order. A plugin overrides it to read `state` only once for
    /// all nodes.
    fn score_all(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        scores.extend(nodes.iter().map(|node| self.score(state, pod, *node)));
    }

    /// Scales the scores to `0..=MAX_NODE_SCORE`. `scores` and `nodes` are in the same order. Default: leaves the
    /// scores unchanged.
    ///
    /// Upstream: `NormalizeScore`.
    fn normalize_score(&self, state: &CycleState, nodes: &[NodeRef<'_>], scores: &mut [i64]) {
        let (_, _, _) = (state, nodes, scores);
    }
}

/// Runs after the pod is assumed on its node. When a later step fails, the scheduler calls [`Reserve::unreserve`] of
/// all plugins in reverse order.
pub trait Reserve: Plugin {
    /// Reserves resources for the pod on the node. An error ends the attempt.
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> StatusResult;
    /// Releases the resources that [`Reserve::reserve`] reserved. The scheduler also calls it when the plugin's
    /// `reserve` did not run.
    fn unreserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str);
}

/// Result of a [`Permit`].
pub enum PermitResult {
    /// Bind the pod.
    Allow,
    /// Delay the binding until the plugin allows it ([`Handle::waiting_pod`]), and reject the pod after this timeout of
    /// at most 15 minutes. Other pods are scheduled in the meantime.
    Wait(Duration),
    /// Reject the pod with this status.
    Reject(Status),
}

/// Runs last in the scheduling cycle. It may delay or prevent the binding.
pub trait Permit: Plugin {
    /// Decides whether to bind the pod, to delay its binding, or to reject it.
    fn permit(&self, state: &CycleState, pod: &PodInfo, node: &str) -> PermitResult;
}

/// Result of [`PreBind::pre_bind_pre_flight`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreBindPreFlight {
    /// The plugin has no work to do for this pod.
    Skip,
    /// The plugin has work to do for this pod.
    Act {
        /// Whether the work may run concurrently with the work of the plugins directly before and after it.
        parallel: bool,
    },
}

/// Runs before the pod is bound, concurrently with the scheduling of other pods.
pub trait PreBind: Plugin {
    /// Decides without I/O whether the plugin has work to do for this pod. Default: it has work, which does not run in
    /// parallel.
    ///
    /// Upstream: `PreBindPreFlight`.
    fn pre_bind_pre_flight(&self, pod: &PodInfo, node: &str) -> PreBindPreFlight {
        let (_, _) = (pod, node);
        PreBindPreFlight::Act { parallel: false }
    }

    /// Does the work that must precede the binding, such as provisioning volumes.
    fn pre_bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> PluginFuture<'a, Result<(), PreBindError>>;
}

/// Failure of a [`PreBind`].
#[derive(Debug, thiserror::Error)]
pub enum PreBindError {
    /// A request to the API server failed.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// A write of the plugin failed.
    #[error("{0}")]
    Write(#[from] Failure),
    /// The plugin rejects the pod with this message.
    #[error("{0}")]
    Refused(String),
}

/// Result of a [`Bind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindResult {
    /// The pod is bound.
    Bound,
    /// The plugin does not bind this pod. The scheduler calls the next plugin.
    Skip,
}

/// Binds pods to nodes. The scheduler calls the plugins in order until one does not skip the pod.
pub trait Bind: Plugin {
    /// Binds the pod to the node, or skips it.
    ///
    /// # Errors
    /// Fails if the binding fails. The scheduler then calls no further plugin.
    fn bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> PluginFuture<'a, Result<BindResult, ApiError>>;
}

/// Runs after a pod is bound.
pub trait PostBind: Plugin {
    /// Informs the plugin of the binding.
    fn post_bind(&self, pod: &PodInfo, node: &str);
}
