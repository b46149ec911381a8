//! Decisions of controllers, as data.
//!
//! A [`Planner`] observes caches and returns a [`Plan`]. The generic shell in [`crate::controller`] carries the plan out and
//! makes no choices of its own: an action holds everything that its write needs, such as preconditions, what must hold live
//! before it, and the event to record.

mod lint;
mod live_read;
mod make;
mod steps;

use crate::introspect::Description;
use bytes::Bytes;
use evenkeel_api::{Kind, Text, time::Timestamp};
pub use lint::{BURST_LIMIT, lint};
pub use live_read::{LiveRead, ReadRequest, Reply};
use std::{fmt, sync::Arc, time::Duration};
pub use steps::Steps;

/// A plan before its first action.
#[derive(Debug)]
pub struct Planned<'a, M> {
    /// The plan, of which no action has begun.
    pub plan: &'a Plan,
    /// Memory that the planner returned with the plan.
    pub memory: &'a M,
    /// When it was planned.
    pub at: Timestamp,
}

/// A finished pass.
#[derive(Debug)]
pub struct Pass<'a, M = ()> {
    /// When it was planned.
    pub planned: Timestamp,
    /// Memory that the planner returned with the plan, before [`Planner::remember`].
    pub memory: &'a M,
    /// Results of the plan's actions.
    pub outcomes: &'a Outcomes,
    /// Duration of the pass, the write of the status included.
    pub took: Duration,
    /// Whether nothing failed.
    pub succeeded: bool,
    /// Whether a failed action ended the pass before its last action and its status ([`OnError::Abort`]).
    pub is_incomplete: bool,
}

/// A queue's key: an object's namespace (empty for cluster-scoped ones) and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, empty for cluster-scoped objects.
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

/// What a controller does next for one key.
#[derive(Debug, Clone, Default, PartialEq)]
#[doc(alias = "reconcile.Result")]
pub struct Plan {
    /// Actions in the order in which they are carried out. Consecutive creates run with slow start. Consecutive deletes, live
    /// reads, or patches of different objects run concurrently, except patches with [`Patch::if_live`].
    pub actions: Vec<Action>,
    /// Time after which the key is planned again even if nothing changes.
    pub requeue: Option<Duration>,
    /// Error with which the pass ends, even if all actions succeed.
    pub error: Option<PlanError>,
}

/// Why a planner cannot do all that a key needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    /// Message for the log.
    pub message: String,
    /// Whether a retry cannot help: the key is planned again on its next event. Otherwise it is retried with backoff.
    pub terminal: bool,
}

/// One write, event, live read or piece of local work.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// GET past the caches; the reply is an input of [`Planner::next`].
    Read(LiveRead),
    /// POST `count` objects made from one body.
    Create(Create),
    /// DELETE one object.
    Delete(Delete),
    /// DELETE all objects of one kind.
    DeleteCollection(DeleteCollection),
    /// PATCH one object.
    Patch(Patch),
    /// PUT one object, or a sub-resource of it.
    Update(Update),
    /// GET one object, change part of it, PUT it whole.
    Rewrite(Rewrite),
    /// Record an event for the user.
    Event(EventRecord),
    /// Work on this machine, not in the API server.
    Local(Local),
}

/// Object that an action writes or an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
    /// Uid, a precondition of deletes and rewrites; empty for an object of any uid.
    pub uid: Arc<str>,
}

/// Creates one or more objects from one body.
#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    /// Kind of the new objects.
    pub kind: Kind,
    /// Namespace of the new objects; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// The object, JSON.
    pub body: Bytes,
    /// Number of objects to create (more than one with `generateName` only), in slow-start batches of 1, 2, 4, …. No batch
    /// follows one with an error. A refusal because the namespace is being terminated is no error here.
    pub count: u32,
    /// Whether it begins after all creates before it have ended, rather than concurrently with them.
    pub waits_for_earlier_creates: bool,
    /// Event after each success; `{name}` in its message is the new object's name.
    pub done: Option<EventRecord>,
    /// Event after a failure; `{error}` in its message is the error. Not recorded if the namespace is being terminated.
    pub failed: Option<EventRecord>,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// Deletes an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    /// Object that the action writes.
    pub target: Target,
    /// Precondition on the object's resource version, if any.
    pub resource_version: Option<Text>,
    /// What the garbage collector does with its dependents; the kind's default where absent.
    pub propagation: Option<Propagation>,
    /// Grace period in seconds; the object's own where absent.
    pub grace_seconds: Option<i64>,
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure; `{error}` in its message is the error.
    pub failed: Option<EventRecord>,
    /// What a failure means for the rest of the pass. A NotFound response counts as success and records no event, and so does
    /// a conflict because the name now belongs to an object of another uid.
    pub on_error: OnError,
}

/// Deletes all objects of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct DeleteCollection {
    /// Kind of the objects.
    pub kind: Kind,
    /// Their namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// What the garbage collector does with their dependents; the kind's default where absent.
    pub propagation: Option<Propagation>,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// Changes part of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// Object that the action writes.
    pub target: Target,
    /// Sub-resource, empty for the object itself.
    pub subresource: &'static str,
    /// Format of `body`.
    pub form: PatchForm,
    /// The patch as JSON, with its preconditions (`metadata.uid`, `metadata.resourceVersion`).
    pub body: Bytes,
    /// Owner that must exist for this patch, an adoption. It is read live before the first such patch of a pass. If it has
    /// another uid or is being deleted, the pass ends as with [`OnError::Abort`].
    ///
    /// Upstream: `CanAdopt`.
    pub if_live: Option<Target>,
    /// Status codes besides 404 that count as success without an event, such as 422 when an object is released.
    pub tolerates: &'static [u16],
    /// Whether a missing target (404) is a failure. Otherwise it counts as success without an event.
    pub fails_if_missing: bool,
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure; `{error}` in its message is the error.
    pub failed: Option<EventRecord>,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// Replaces an object or a sub-resource of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// Object that the action writes.
    pub target: Target,
    /// Sub-resource, empty for the object itself.
    pub subresource: &'static str,
    /// The whole object, JSON, with its `resourceVersion`.
    pub body: Bytes,
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure; `{error}` in its message is the error.
    pub failed: Option<EventRecord>,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// Changes part of an object by GET and PUT, for kinds on which upstream's roles grant `update` but not `patch`. The object is
/// read live and written back whole, so no field is lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewrite {
    /// Object that the action writes.
    pub target: Target,
    /// Sub-resource, empty for the object itself.
    pub subresource: &'static str,
    /// Resource version that the planner observed. Any other is a conflict (409), found by the GET or the PUT. Empty if an
    /// earlier action of the plan changes the object: then only the uid must match.
    pub resource_version: Arc<str>,
    /// Format of `body`: `Merge` or `Json`.
    pub form: PatchForm,
    /// The change as JSON.
    pub body: Bytes,
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure; `{error}` in its message is the error.
    pub failed: Option<EventRecord>,
    /// Whether a conflict records no event, because the key is planned again. Upstream does such writes in
    /// `retry.RetryOnConflict`.
    pub retries_on_conflict: bool,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// Format of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PatchForm {
    /// JSON patch (RFC 6902).
    Json,
    /// JSON merge patch (RFC 7386).
    Merge,
    /// Strategic merge patch; built-in kinds only.
    Strategic,
    /// Server-side apply by this field manager, with force. It creates a missing object.
    Apply(&'static str),
}

/// What the garbage collector does with the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// It removes their owner reference.
    Orphan,
    /// It deletes them after the owner.
    Background,
    /// It deletes them before the owner.
    Foreground,
}

/// What a failed action means for the rest of its pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// The pass continues and computes the status. It ends with the error, so the key is retried with backoff.
    #[default]
    Continue,
    /// The pass ends here without a status. The key is retried with backoff.
    Abort,
    /// The remaining actions are skipped, and the status is computed. The pass ends with the error, so the key is retried with
    /// backoff.
    SkipRest,
    /// Like [`OnError::SkipRest`], for one part of the plan: only the remaining actions with the same number are skipped. The
    /// outcome of a skipped action has neither success nor error.
    SkipPart(u32),
    /// The pass continues as if the action had succeeded.
    Ignore,
}

/// Work outside the API server, such as creating a folder. The function of
/// [`Builder::local_work`](crate::controller::Builder::local_work) does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Kind of work.
    pub work: &'static str,
    /// Object of the work, such as a path.
    pub subject: String,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// An event to record for the user, about `regarding`.
///
/// Upstream: the arguments of `Eventf` of client-go's `EventRecorder`.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Object the event is about.
    pub regarding: Target,
    /// `Warning` rather than `Normal`.
    pub warning: bool,
    /// Reason in CamelCase.
    pub reason: &'static str,
    /// Message of the event, for people.
    pub message: String,
}

/// Results of actions, in the plan's order. Shorter than the plan if an action ended the pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes(pub Vec<Outcome>);

/// Result of one action.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of writes that succeeded; at most 1, except for creates.
    pub succeeded: u32,
    /// The first error, if any. A refusal because the namespace is being terminated is here only if there is no other error;
    /// it causes no retry.
    pub error: Option<Failure>,
    /// Reply of a live read that succeeded.
    pub reply: Option<Reply>,
    /// Duration of a live read.
    pub took: Duration,
    /// Name of the created object; of several, the last one.
    pub created: Option<Text>,
    /// `metadata.resourceVersion` that the API server returned for a change of one object.
    pub resource_version: Option<Text>,
}

/// Why an action failed: the parts of the error on which a status may depend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// HTTP status code; 0 if there was no response.
    pub code: u16,
    /// `reason` of the Status, such as `AlreadyExists`.
    pub reason: String,
    /// `message` of the Status, or the transport's error.
    pub message: String,
    /// Whether the namespace is being terminated (cause `NamespaceTerminating`).
    pub namespace_terminating: bool,
}

/// A controller's pure decisions: actions, then the status. A planner holds no state: what the next pass over a key must know is
/// its [`Planner::Memory`], and metrics are counted by a [`PassHandler`].
#[doc(alias("Reconciler", "syncHandler"))]
pub trait Planner: Send + Sync + 'static {
    /// All inputs of a decision: shared references into caches.
    type Observed: Send + Sync;
    /// What one pass over a key leaves for the next one; `()` if a decision depends on what is observed alone. The runtime keeps
    /// it per key, and drops it with the key's object.
    type Memory: Default + PartialEq + Send + Sync + 'static;
    /// Reads caches, and nothing else. Returns `None` if the object is gone and there is nothing left to do about it.
    fn observe(&self, key: &Key, memory: &Self::Memory) -> Option<Self::Observed>;
    /// Returns the next actions, and the memory for the next pass.
    fn plan(
        &self,
        observed: &Self::Observed,
        memory: &Self::Memory,
        now: Timestamp,
    ) -> (Plan, Self::Memory);
    /// Returns the actions that follow those so far, for decisions that need the reply of a live read or the result of a write.
    ///
    /// It is called with the outcomes of all earlier steps, in order, until it returns `None`, a plan without actions or one
    /// with an error, or until an action ends the steps ([`OnError::Abort`], [`OnError::SkipRest`]). The status comes after the
    /// last step. `now` is the time that [`Planner::plan`] got. With [`Steps`], several steps are one function.
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
    /// Returns what [`Planner::next`] decides without outcomes, for the [`Planner::plan`] of a planner that decides in `next`
    /// alone.
    fn first_step(&self, observed: &Self::Observed, memory: &Self::Memory, now: Timestamp) -> Plan {
        self.next(observed, memory, &Outcomes::default(), now).unwrap_or_default()
    }
    /// Returns the actions that follow from the outcomes in the same pass, usually one update of the status, or none if it does
    /// not change. Default: none.
    ///
    /// `memory` is what [`Planner::plan`] returned. `now` is later than the time of the plan, so a planner keeps in its memory
    /// what it must not decide twice.
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
    /// Returns a memory to replace the plan's, if that depends on the outcomes; `None` keeps the plan's. It is not called for an
    /// incomplete pass. `now` is the time that [`Planner::plan`] got.
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
    /// Describes for `evenkeel explain` what the planner observes, what it waits for, and which objects it keeps. The report
    /// also has the actions of the plan and the state of the queue.
    fn describe(&self, observed: &Self::Observed, now: Timestamp) -> Description {
        let _ = (observed, now);
        Description::new()
    }
}

/// Follows the passes of a planner: counts metrics, and records for event handlers what a pass is about to write. `()` does
/// nothing.
pub trait PassHandler<P: Planner>: Send + Sync + 'static {
    /// Called with each plan, before its first action.
    fn on_planned(&self, observed: &P::Observed, planned: Planned<'_, P::Memory>) {
        let _ = (observed, planned);
    }
    /// Called at the end of each pass.
    fn on_passed(&self, observed: &P::Observed, pass: &Pass<'_, P::Memory>) {
        let _ = (observed, pass);
    }
    /// Called when [`Planner::observe`] finds nothing at a key.
    fn on_gone(&self, key: &Key) {
        let _ = key;
    }
}

impl<P: Planner> PassHandler<P> for () {}
