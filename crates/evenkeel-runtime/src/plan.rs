//! What a controller decides, as data.
//!
//! A planner looks at what was observed and returns a [`Plan`]; the generic shell in [`crate::controller`] carries it out
//! and has no choices left. Everything a write needs (preconditions, what must hold live before it, which event tells of
//! it) travels with the action.

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

/// A decision before it is carried out.
#[derive(Debug)]
pub struct Planned<'a, M> {
    /// The actions, none of which has begun.
    pub plan: &'a Plan,
    /// What the planner remembers of it.
    pub memory: &'a M,
    /// When it was planned.
    pub at: Timestamp,
}

/// A finished pass.
#[derive(Debug)]
pub struct Pass<'a, M = ()> {
    /// When it was planned.
    pub planned: Timestamp,
    /// What the planner remembered of its plan, before [`Planner::remember`].
    pub memory: &'a M,
    /// How the actions of the plan went.
    pub outcomes: &'a Outcomes,
    /// How long it took, the status included.
    pub took: Duration,
    /// Whether all of it went well.
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
    /// `namespace/name`, or `name` alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// What a planner decided.
#[derive(Debug, Clone, Default, PartialEq)]
#[doc(alias = "reconcile.Result")]
pub struct Plan {
    /// Carried out in order, runs of [`Action::Create`] with slow start, runs of [`Action::Delete`] or [`Action::Read`]
    /// side by side, and so runs of [`Action::Patch`] of different objects, but for adoptions.
    pub actions: Vec<Action>,
    /// Plan again after this time even if nothing changes.
    pub requeue: Option<Duration>,
    /// Why the pass ends with an error, even if all actions succeed.
    pub error: Option<PlanError>,
}

/// Why a planner cannot do all that a key needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    /// Message for the log.
    pub message: String,
    /// Whether the key waits for its next event. Otherwise it is retried with back-off.
    pub terminal: bool,
}

/// A write, or an event, or both; or a live read.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Read past the caches; the reply is input of [`Planner::next`].
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
    /// Read one object live, change some of it, PUT it whole.
    Rewrite(Rewrite),
    /// Tell the user.
    Event(EventRecord),
    /// Work on this machine.
    Local(Local),
}

/// Which object an action is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace, empty for cluster-scoped ones.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
    /// Uid, where known.
    pub uid: Arc<str>,
}

/// Creates one or more objects of one body.
#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    /// Kind of the new objects.
    pub kind: Kind,
    /// Namespace of the new objects; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// The object, JSON.
    pub body: Bytes,
    /// How many of it (with `generateName`), in slow-start batches of 1, 2, 4, …; the first batch with an error is the last,
    /// where a refusal because the namespace is being terminated counts as none.
    pub count: u32,
    /// Whether it waits until all creates before it are done, instead of running concurrently with them.
    pub waits_for_earlier_creates: bool,
    /// Event after each success; `{name}` in its message is the new object's name.
    pub done: Option<EventRecord>,
    /// Event after a failure; `{error}` in its message is the error. Not sent when the namespace is being terminated.
    pub failed: Option<EventRecord>,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// Deletes an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    /// Object that the action writes.
    pub target: Target,
    /// Only this version of it.
    pub resource_version: Option<Text>,
    /// What becomes of its dependents.
    pub propagation: Option<Propagation>,
    /// Seconds of grace, if not the object's own.
    pub grace_seconds: Option<i64>,
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure; `{error}` in its message is the error.
    pub failed: Option<EventRecord>,
    /// What a failure means for the rest of the pass. Not found is no failure, and tells no event; nor is a target with a
    /// uid whose name is another object's now.
    pub on_error: OnError,
}

/// Deletes all objects of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct DeleteCollection {
    /// Kind of the objects.
    pub kind: Kind,
    /// Their namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// What becomes of their dependents.
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
    /// How `body` is meant.
    pub form: PatchForm,
    /// The patch, JSON. Preconditions (`metadata.uid`, `metadata.resourceVersion`) stand in it.
    pub body: Bytes,
    /// Before the first such patch of a pass, the owner is read live: it must have this uid and not be deleting, or the
    /// pass ends there (as with [`OnError::Abort`]).
    pub if_live: Option<Target>,
    /// Status codes besides 404 that count as success without an event, such as 422 when an object is released.
    pub tolerates: &'static [u16],
    /// Whether it is a failure that the target is not there (404). Otherwise that counts as success without an event.
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

/// Changes part of an object by PUT, for those kinds on which roles grant `update` but not `patch`: what is read live is
/// changed and written back whole, so no field is dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewrite {
    /// Object that the action writes.
    pub target: Target,
    /// Sub-resource, empty for the object itself.
    pub subresource: &'static str,
    /// The version that was decided upon: any other is a conflict (code 409), found before or by the PUT. Empty where the
    /// same plan changes the object before this: then it need only be the same object.
    pub resource_version: Arc<str>,
    /// How `body` is meant; merge or JSON.
    pub form: PatchForm,
    /// The change, JSON.
    pub body: Bytes,
    /// Event after success.
    pub done: Option<EventRecord>,
    /// Event after a failure; `{error}` in its message is the error.
    pub failed: Option<EventRecord>,
    /// Whether a conflict records no event: upstream does such writes under `retry.RetryOnConflict`, here the key is planned
    /// again.
    pub retries_on_conflict: bool,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// How a patch's body is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PatchForm {
    /// JSON patch (RFC 6902).
    Json,
    /// JSON merge patch (RFC 7386).
    Merge,
    /// Kubernetes' own; built-in kinds only.
    Strategic,
    /// What this field manager wants of the object, taken from others where they disagree (server-side apply); the object is
    /// made where it is not there.
    Apply(&'static str),
}

/// What becomes of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// They lose the owner.
    Orphan,
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
}

/// What a failed action means for those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// The pass goes on (status is still computed), and ends with the error: a retry with back-off.
    #[default]
    Continue,
    /// The pass ends here, status is not computed; a retry with back-off.
    Abort,
    /// The plan's remaining actions are left out, status is computed, and the pass ends with the error: a retry with
    /// back-off.
    SkipRest,
    /// The same for the actions of one part of the plan, which have this value with the same number: those of other parts
    /// are carried out. What is left out counts as an outcome without success or error.
    SkipPart(u32),
    /// The pass goes on as if nothing had happened.
    Ignore,
}

/// Work outside the API server, such as making a folder, which the controller's wiring does
/// ([`Builder::local_work`](crate::controller::Builder::local_work)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// What is done.
    pub work: &'static str,
    /// What it is done to, such as a path.
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

/// How each action went, in the plan's order. Shorter than the plan when an action ended it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes(pub Vec<Outcome>);

/// How one action went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many writes succeeded (at most 1 but for creates).
    pub succeeded: u32,
    /// The first error, if any. One because the namespace is being terminated stands here only where there is no other; the
    /// pass is not retried for it.
    pub error: Option<Failure>,
    /// Reply of a live read that succeeded.
    pub reply: Option<Reply>,
    /// How long a live read took.
    pub took: Duration,
    /// Name of the object that was created; of the last one of several.
    pub created: Option<Text>,
    /// `metadata.resourceVersion` that the API server returned for a change of one object.
    pub resource_version: Option<Text>,
}

/// Why a write failed, as far as a status may depend on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// HTTP status code, 0 when there was no answer.
    pub code: u16,
    /// `reason` of the Status, such as `AlreadyExists`.
    pub reason: String,
    /// `message` of the Status, or the transport's error.
    pub message: String,
    /// Whether the namespace is being terminated (cause `NamespaceTerminating`).
    pub namespace_terminating: bool,
}

/// The two pure halves of a controller, and how it reads its caches. A planner holds no state: what a key's next pass must
/// know is its [`Planner::Memory`], and what is counted of passes belongs to a [`PassHandler`].
#[doc(alias("Reconciler", "syncHandler"))]
pub trait Planner: Send + Sync + 'static {
    /// All that a decision may look at: shared references into caches.
    type Observed: Send + Sync;
    /// What one pass over a key leaves for the next one; `()` if a decision follows from what is observed alone. The runtime
    /// keeps it for each key, and drops it when there is nothing at the key.
    type Memory: Default + PartialEq + Send + Sync + 'static;
    /// Reads caches (nothing else); `None` when the object is gone and nothing is left to do about it.
    fn observe(&self, key: &Key, memory: &Self::Memory) -> Option<Self::Observed>;
    /// Decides, and says what to remember of it.
    fn plan(
        &self,
        observed: &Self::Observed,
        memory: &Self::Memory,
        now: Timestamp,
    ) -> (Plan, Self::Memory);
    /// Decides what follows the actions so far, for decisions that need the reply of a live read or the result of a write.
    /// Called with the outcomes of all earlier steps, in order, until it returns `None`, a plan without actions or one with an
    /// error, or an action ends the steps ([`OnError::Abort`], [`OnError::SkipRest`]). The status comes after the last step.
    /// `now` is the time that [`Planner::plan`] got. [`Steps`] helps to write several steps as one function.
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
    /// Returns the first step of planners whose steps are one decision: what [`Planner::next`] decides without outcomes. For
    /// their [`Planner::plan`].
    fn first_step(&self, observed: &Self::Observed, memory: &Self::Memory, now: Timestamp) -> Plan {
        self.next(observed, memory, &Outcomes::default(), now).unwrap_or_default()
    }
    /// The status (and what else must follow from how the actions went), in the same pass: more actions, usually one
    /// update of the status sub-resource, or none when nothing changed. A kind without a status has nothing to add.
    /// `memory` is what [`Planner::plan`] returned, so a planner can keep its decision there: `now` is a later time than that
    /// of the plan.
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
    /// Replaces the memory that a plan left, by how its actions went; `None` keeps it, as a pass that is incomplete does. `now` is the
    /// time that [`Planner::plan`] got.
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
    /// What it observes in words, why it waits, and which objects it keeps: for people who ask (`evenkeel explain`). Actions
    /// and the queue are listed anyway.
    fn describe(&self, observed: &Self::Observed, now: Timestamp) -> Description {
        let _ = (observed, now);
        Description::new()
    }
}

/// The wiring's part in a planner's passes: counts metrics, and notes for event handlers what a pass is about to write. `()`
/// does nothing.
pub trait PassHandler<P: Planner>: Send + Sync + 'static {
    /// Called with each plan, before its first action.
    fn on_planned(&self, observed: &P::Observed, planned: Planned<'_, P::Memory>) {
        let _ = (observed, planned);
    }
    /// Called at the end of each pass.
    fn on_passed(&self, observed: &P::Observed, pass: &Pass<'_, P::Memory>) {
        let _ = (observed, pass);
    }
    /// Called when a pass finds nothing at a key.
    fn on_gone(&self, key: &Key) {
        let _ = key;
    }
}

impl<P: Planner> PassHandler<P> for () {}
