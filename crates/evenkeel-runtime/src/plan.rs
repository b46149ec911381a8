//! Plans: decisions of controllers as data.
//!
//! A [`Planner`] observes caches and returns a [`Plan`]. The generic executor in [`crate::controller`] executes the
//! plan and makes no decisions. An action contains everything that its write needs: preconditions, a live precondition,
//! and the event to record.

mod lint;
mod live_read;
mod make;
mod steps;

use crate::introspect::Description;
use bytes::Bytes;
use evenkeel_api::{Kind, Text, time::Timestamp};
pub use lint::{BURST_LIMIT, lint};
pub use live_read::{LiveRead, ReadRequest, Reply};
use std::{borrow::Cow, fmt, sync::Arc, time::Duration};
pub use steps::Steps;

/// Plan before its first action.
#[derive(Debug)]
pub struct Planned<'a, M> {
    /// The plan. None of its actions has started.
    pub plan: &'a Plan,
    /// Memory that the planner returned with the plan.
    pub memory: &'a M,
    /// Time of the planning.
    pub at: Timestamp,
}

/// Results of a completed pass.
#[derive(Debug)]
pub struct Pass<'a, M = ()> {
    /// Time of the planning.
    pub planned_at: Timestamp,
    /// Memory that the planner returned with the plan, before [`Planner::remember`].
    pub memory: &'a M,
    /// Results of the plan's actions.
    pub outcomes: &'a Outcomes,
    /// Duration of the pass, including the write of the status.
    pub took: Duration,
    /// Whether the pass ended without an error.
    pub succeeded: bool,
    /// Whether a failed action ended the pass before its last action and its status ([`OnError::Abort`]).
    pub is_incomplete: bool,
}

/// Key of a queue: an object's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace. Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
}

impl fmt::Display for Key {
    /// Writes `namespace/name`, or `name` for cluster-scoped objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Next actions of a controller for one key.
#[derive(Debug, Clone, Default, PartialEq)]
#[doc(alias = "reconcile.Result")]
pub struct Plan {
    /// Actions in the order of their execution. Consecutive creates run with slow start. Consecutive deletes, live
    /// reads, or patches of different objects run concurrently, except patches with [`Patch::if_live`].
    pub actions: Vec<Action>,
    /// Time after which the key is planned again even if nothing changes.
    pub requeue: Option<Duration>,
    /// Error with which the pass ends, even if all actions succeed.
    pub error: Option<PlanError>,
}

/// Reason why a planner cannot complete the work for a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    /// Message for the log.
    pub message: String,
    /// Whether a retry cannot succeed. If so, the key is planned again on its next event. Otherwise it is retried with
    /// backoff.
    pub terminal: bool,
}

/// One write, event, live read or local work.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Read from the API server. The reply is an input of [`Planner::next`].
    Read(LiveRead),
    /// Create `count` objects from one body.
    Create(Create),
    /// Delete one object.
    Delete(Delete),
    /// Delete all objects of one kind in a namespace.
    DeleteCollection(DeleteCollection),
    /// Patch one object.
    Patch(Patch),
    /// Replace one object or one of its sub-resources.
    Update(Update),
    /// Read one object, change part of it, and write it back whole.
    Rewrite(Rewrite),
    /// Record an event for the user.
    Event(EventRecord),
    /// Work on this machine instead of the API server.
    Local(Local),
}

/// Object that an action writes, or that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace. Empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
    /// Uid, a precondition of deletes and rewrites. Empty matches any uid.
    pub uid: Arc<str>,
}

/// Creates one or more objects from one body.
#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    /// Kind of the new objects.
    pub kind: Kind,
    /// Namespace of the new objects. Empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// The object as JSON.
    pub body: Bytes,
    /// Number of objects to create, in slow-start batches of 1, 2, 4, …. More than one needs `generateName`. After an
    /// error, no further batch is sent, except if the namespace is terminating.
    pub count: u32,
    /// Whether this create waits for all earlier creates, instead of running concurrently with them.
    pub waits_for_earlier_creates: bool,
    /// Event after each success. `{name}` in its message becomes the new object's name.
    pub done: Option<EventRecord>,
    /// Event after a failure. `{error}` in its message becomes the error. Not recorded if the namespace is
    /// terminating.
    pub failed: Option<EventRecord>,
    /// Effect of a failure on the rest of the pass.
    pub on_error: OnError,
}

/// Deletes an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    /// The object to delete.
    pub target: Target,
    /// Precondition on the object's resource version, if any.
    pub resource_version: Option<Text>,
    /// Propagation policy for the object's dependents. `None` means the kind's default.
    pub propagation: Option<Propagation>,
    /// Grace period in seconds. `None` means the object's own.
    pub grace_seconds: Option<i64>,
    /// Status codes besides 404 that are not failures and record no event, such as 409 for an object that has changed.
    pub tolerates: &'static [u16],
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure. `{error}` in its message becomes the error.
    pub failed: Option<EventRecord>,
    /// Effect of a failure on the rest of the pass. A NotFound response, or a conflict because an object with another
    /// uid has the name, counts as success and records no event.
    pub on_error: OnError,
}

/// Deletes all objects of a kind in a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct DeleteCollection {
    /// Kind of the objects.
    pub kind: Kind,
    /// Namespace of the objects. Empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Propagation policy for the objects' dependents. `None` means the kind's default.
    pub propagation: Option<Propagation>,
    /// Effect of a failure on the rest of the pass.
    pub on_error: OnError,
}

/// Changes part of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// The object to patch.
    pub target: Target,
    /// Sub-resource. Empty for the object itself.
    pub subresource: &'static str,
    /// Format of `body`.
    pub form: PatchType,
    /// The patch as JSON, with its preconditions (`metadata.uid`, `metadata.resourceVersion`).
    pub body: Bytes,
    /// Owner that must exist for this patch, which adopts the object. The executor reads the owner live before the
    /// first such patch of a pass. If the owner has another uid or is being deleted, the pass ends as with
    /// [`OnError::Abort`].
    ///
    /// Upstream: `CanAdopt`.
    pub if_live: Option<Target>,
    /// Status codes besides 404 that count as success without an event, such as 422 when an object is released.
    pub tolerates: &'static [u16],
    /// Whether a missing target (404) is a failure. Otherwise it counts as success without an event.
    pub fails_if_missing: bool,
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure. `{error}` in its message becomes the error.
    pub failed: Option<EventRecord>,
    /// Effect of a failure on the rest of the pass.
    pub on_error: OnError,
}

/// Replaces an object or one of its sub-resources.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The object to replace.
    pub target: Target,
    /// Sub-resource. Empty for the object itself.
    pub subresource: &'static str,
    /// The whole object as JSON, with its `resourceVersion`.
    pub body: Bytes,
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure. `{error}` in its message becomes the error.
    pub failed: Option<EventRecord>,
    /// Effect of a failure on the rest of the pass.
    pub on_error: OnError,
}

/// Changes part of an object by GET and PUT, for kinds on which upstream's roles grant `update` but not `patch`. Writes
/// the whole live object, so that no field is lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewrite {
    /// The object to change.
    pub target: Target,
    /// Sub-resource. Empty for the object itself.
    pub subresource: &'static str,
    /// Resource version that the planner observed. Any other version is a conflict (409), detected by the GET
    /// or the PUT. Empty if an earlier action of the plan changes the object: then only the uid must match.
    pub resource_version: Arc<str>,
    /// Format of `body`: `Merge` or `Json`.
    pub form: PatchType,
    /// The change as JSON.
    pub body: Bytes,
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure. `{error}` in its message becomes the error.
    pub failed: Option<EventRecord>,
    /// Whether a conflict records no event, because the key is planned again. Upstream calls `retry.RetryOnConflict`
    /// for such writes.
    pub retries_on_conflict: bool,
    /// Effect of a failure on the rest of the pass.
    pub on_error: OnError,
}

/// Format of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PatchType {
    /// JSON patch (RFC 6902).
    Json,
    /// JSON merge patch (RFC 7386).
    Merge,
    /// Strategic merge patch, for built-in kinds only.
    Strategic,
    /// Server-side apply by this field manager, with force. It creates a missing object.
    Apply(&'static str),
}

/// Propagation policy: handling of the dependents of a deleted object by the garbage collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// Removes their owner reference.
    Orphan,
    /// Deletes them after the owner.
    Background,
    /// Deletes them before the owner.
    Foreground,
}

/// Effect of a failed action on the rest of its pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// The pass continues and computes the status. It ends with the error, so the key is retried with backoff.
    #[default]
    Continue,
    /// The pass ends here without a status. The key is retried with backoff.
    Abort,
    /// The remaining actions are skipped, and the status is computed. The pass ends with the error, so the key is
    /// retried with backoff.
    SkipRest,
    /// Like [`OnError::SkipRest`], for one part of the plan: only the remaining actions with the same number
    /// are skipped. The outcome of a skipped action has neither success nor error.
    SkipPart(u32),
    /// The pass continues as if the action had succeeded.
    Ignore,
}

/// Work outside the API server, such as creating a folder. The function of
/// [`Builder::local_work`](crate::controller::Builder::local_work) executes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Kind of work.
    pub work: &'static str,
    /// Object of the work, such as a path.
    pub subject: String,
    /// Effect of a failure on the rest of the pass.
    pub on_error: OnError,
}

/// Event to record for the user.
///
/// Upstream: the arguments of `Eventf` of client-go's `EventRecorder`.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Object that the event is about.
    pub regarding: Target,
    /// Whether the event's type is `Warning` instead of `Normal`.
    pub warning: bool,
    /// Reason in CamelCase.
    pub reason: Cow<'static, str>,
    /// Message of the event, for people.
    pub message: String,
}

/// Results of actions, in the plan's order. Shorter than the plan if an action ended the pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes(pub Vec<Outcome>);

/// Result of one action. A skipped action has neither a success nor an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of writes that succeeded: at most 1, except for creates.
    pub succeeded: u32,
    /// The first error, if any. An error because the namespace is terminating causes no retry, and appears only if no
    /// other error occurred.
    pub error: Option<Failure>,
    /// Reply of a live read that succeeded.
    pub reply: Option<Reply>,
    /// Duration of a live read.
    pub took: Duration,
    /// Name of the created object, or of the last one of several.
    pub created: Option<Text>,
    /// `metadata.resourceVersion` that the API server returned for a change of one object.
    pub resource_version: Option<Text>,
}

/// Failure of an action: the parts of the error on which a status may depend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// HTTP status code, or 0 without a response.
    pub code: u16,
    /// `reason` of the Status, such as `AlreadyExists`.
    pub reason: String,
    /// `message` of the Status, or the transport's error.
    pub message: String,
    /// Whether the namespace is terminating (cause `NamespaceTerminating`).
    pub namespace_terminating: bool,
}

/// Pure decisions of a controller: actions, then the status. A planner has no state. Its [`Planner::Memory`] contains
/// the inputs for the next pass over a key, and a [`PassHandler`] counts metrics.
#[doc(alias("Reconciler", "syncHandler"))]
pub trait Planner: Send + Sync + 'static {
    /// All inputs of a decision: shared references into caches.
    type Observed: Send + Sync;
    /// Memory that one pass over a key leaves for the next one, or `()` if decisions depend only on the
    /// observation. The runtime keeps it per key, and drops it with the key's object.
    type Memory: Default + PartialEq + Send + Sync + 'static;
    /// Returns the inputs of a decision, from caches only. Returns `None` if the object is gone and needs no further
    /// work.
    fn observe(&self, key: &Key, memory: &Self::Memory) -> Option<Self::Observed>;
    /// Returns the next actions, and the memory for the next pass.
    fn plan(
        &self,
        observed: &Self::Observed,
        memory: &Self::Memory,
        now: Timestamp,
    ) -> (Plan, Self::Memory);
    /// Returns the actions of the next step, for decisions that need the reply of a live read or the result of
    /// a write.
    ///
    /// The runtime calls it with the outcomes of all earlier steps, in order. The steps end when it returns
    /// `None`, a plan without actions, or a plan with an error, or when an action ends them
    /// ([`OnError::Abort`], [`OnError::SkipRest`]). The status follows the last step. `now` is the time that
    /// [`Planner::plan`] received. With [`Steps`], one function can decide several steps.
    fn next(
        &self,
        observed: &Self::Observed,
        memory: &Self::Memory,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        let _ = (observed, memory, outcomes, now);
        None
    }
    /// Returns the decision of [`Planner::next`] without outcomes, for planners that decide only in `next`.
    /// Their [`Planner::plan`] calls it.
    fn first_step(&self, observed: &Self::Observed, memory: &Self::Memory, now: Timestamp) -> Plan {
        self.next(observed, memory, &Outcomes::default(), now).unwrap_or_default()
    }
    /// Returns the actions that follow from the outcomes in the same pass. Usually this is one update of the
    /// status, or no action if the status does not change. Default: none.
    ///
    /// `memory` is the one that [`Planner::plan`] returned. `now` is later than the time of the plan, so that a planner
    /// stores decisions in its memory that both must share.
    fn status(
        &self,
        observed: &Self::Observed,
        memory: &Self::Memory,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Plan {
        let _ = (observed, memory, outcomes, now);
        Plan::nothing()
    }
    /// Returns a memory that depends on the outcomes and replaces the plan's. `None` keeps the plan's. Not
    /// called for an incomplete pass. `now` is the time that [`Planner::plan`] received.
    fn remember(
        &self,
        observed: &Self::Observed,
        memory: &Self::Memory,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Self::Memory> {
        let _ = (observed, memory, outcomes, now);
        None
    }
    /// Returns the observations, the reasons to wait, and the dependent objects, for `evenkeel explain`. The report
    /// also contains the actions of the plan and the state of the queue.
    fn describe(&self, observed: &Self::Observed, now: Timestamp) -> Description {
        let _ = (observed, now);
        Description::new()
    }
}

/// Observer of a planner's passes. It counts metrics, and informs event handlers about the next writes of a pass. `()`
/// does nothing.
pub trait PassHandler<P: Planner>: Send + Sync + 'static {
    /// Handles the plan of a pass before its first action.
    fn on_planned(&self, observed: &P::Observed, planned: Planned<'_, P::Memory>) {
        let _ = (observed, planned);
    }
    /// Handles the end of a pass.
    fn on_passed(&self, observed: &P::Observed, pass: &Pass<'_, P::Memory>) {
        let _ = (observed, pass);
    }
    /// Handles a key without an object: [`Planner::observe`] returned `None`.
    fn on_gone(&self, key: &Key) {
        let _ = key;
    }
}

impl<P: Planner> PassHandler<P> for () {}
