//! Constructors for the values of a plan.
//!
//! A constructor takes the required fields of an action. Struct update syntax sets the other fields: `Create { count: 3,
//! ..Create::new(kind, namespace, body) }`.

use super::{
    Action, Create, Delete, DeleteCollection, EventRecord, Failure, Key, LiveRead, Local, OnError,
    Outcome, Outcomes, Patch, PatchType, Plan, PlanError, Propagation, Rewrite, Target, Update,
};
use bytes::Bytes;
use evenkeel_api::{Kind, Meta};
use std::{borrow::Cow, sync::Arc, time::Duration};

impl Key {
    /// Returns a key. `namespace` is empty for cluster-scoped objects.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: Arc::from(namespace), name: Arc::from(name) }
    }

    /// Returns the key of the object with this metadata.
    pub fn of(meta: &Meta) -> Self {
        Self::new(&meta.namespace, &meta.name)
    }
}

impl Target {
    /// Returns a target. An empty `uid` matches any uid.
    pub fn new(kind: Kind, namespace: &str, name: &str, uid: &str) -> Self {
        Self { kind, namespace: Arc::from(namespace), name: Arc::from(name), uid: Arc::from(uid) }
    }

    /// Returns the object with this metadata as a target.
    pub fn of(kind: Kind, meta: &Meta) -> Self {
        Self::new(kind, &meta.namespace, &meta.name, &meta.uid)
    }
}

impl Plan {
    /// Returns a plan without actions.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Returns a plan of these actions, in order.
    pub fn of(actions: Vec<Action>) -> Self {
        Self { actions, ..Self::default() }
    }

    /// Returns a plan with a single action.
    pub fn one(action: impl Into<Action>) -> Self {
        Self::of(vec![action.into()])
    }

    /// Returns a plan without actions whose pass fails. The key is retried with backoff.
    pub fn failure(message: impl Into<String>) -> Self {
        Self { error: Some(PlanError::new(message)), ..Self::default() }
    }

    /// Returns whether the plan has no action, no requeue and no error.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Adds an action at the end.
    pub fn push(&mut self, action: impl Into<Action>) {
        self.actions.push(action.into());
    }

    /// Plans the key again after `time`, or earlier if an earlier call requested that.
    pub fn requeue_after(&mut self, time: Duration) {
        self.requeue = Some(self.requeue.map_or(time, |earlier| earlier.min(time)));
    }
}

impl PlanError {
    /// Returns an error after which the key is retried with backoff.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), terminal: false }
    }

    /// Returns an error that a retry cannot resolve. The key waits for its next event.
    pub fn terminal(message: impl Into<String>) -> Self {
        Self { message: message.into(), terminal: true }
    }
}

impl Create {
    /// Creates one object from `body`, without events.
    pub fn new(kind: Kind, namespace: &str, body: impl Into<Bytes>) -> Self {
        Self {
            kind,
            namespace: Arc::from(namespace),
            body: body.into(),
            count: 1,
            waits_for_earlier_creates: false,
            done: None,
            failed: None,
            on_error: OnError::Continue,
        }
    }
}

impl Delete {
    /// Deletes `target` without events. If its uid is set, deletes only the object with that uid.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            resource_version: None,
            propagation: None,
            grace_seconds: None,
            tolerates: &[],
            done: None,
            failed: None,
            on_error: OnError::Continue,
        }
    }
}

impl DeleteCollection {
    /// Deletes all objects of this kind in the namespace, and then their dependents.
    pub fn new(kind: Kind, namespace: &str) -> Self {
        Self {
            kind,
            namespace: Arc::from(namespace),
            propagation: Some(Propagation::Background),
            on_error: OnError::Continue,
        }
    }
}

impl Patch {
    /// Patches `target` itself, without events.
    pub fn new(target: Target, form: PatchType, body: impl Into<Bytes>) -> Self {
        Self {
            target,
            subresource: "",
            form,
            body: body.into(),
            if_live: None,
            tolerates: &[],
            fails_if_missing: false,
            done: None,
            failed: None,
            on_error: OnError::Continue,
        }
    }
}

impl Update {
    /// Replaces `target` itself, without events.
    pub fn new(target: Target, body: impl Into<Bytes>) -> Self {
        Self {
            target,
            subresource: "",
            body: body.into(),
            done: None,
            failed: None,
            on_error: OnError::Continue,
        }
    }

    /// Replaces the status sub-resource of `target`.
    pub fn status(target: Target, body: impl Into<Bytes>) -> Self {
        Self { subresource: "status", ..Self::new(target, body) }
    }
}

impl Rewrite {
    /// Changes `target` if it still has this version, without events.
    pub fn new(
        target: Target,
        resource_version: &str,
        form: PatchType,
        body: impl Into<Bytes>,
    ) -> Self {
        Self {
            target,
            subresource: "",
            resource_version: Arc::from(resource_version),
            form,
            body: body.into(),
            done: None,
            failed: None,
            retries_on_conflict: false,
            on_error: OnError::Continue,
        }
    }
}

impl Rewrite {
    /// Returns the same change, for the status sub-resource.
    #[must_use]
    pub fn of_status(self) -> Self {
        Self { subresource: "status", ..self }
    }
}

impl EventRecord {
    /// Returns a `Normal` event.
    pub fn normal(
        regarding: Target,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { regarding, warning: false, reason: reason.into(), message: message.into() }
    }

    /// Returns a `Warning` event.
    pub fn warning(
        regarding: Target,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { warning: true, ..Self::normal(regarding, reason, message) }
    }
}

impl Outcomes {
    /// Returns the first error among the actions, also of actions with [`OnError::Ignore`].
    pub fn first_error(&self) -> Option<&Failure> {
        self.0.iter().find_map(|outcome| outcome.error.as_ref())
    }
}

impl Outcome {
    /// Returns the outcome of one successful write.
    pub fn success() -> Self {
        Self { succeeded: 1, ..Self::default() }
    }

    /// Returns the outcome of one failed write.
    pub fn failure(error: Failure) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
}

impl Failure {
    /// Returns a failure that did not come from the API server.
    pub fn local(message: impl Into<String>) -> Self {
        Self {
            code: 0,
            reason: String::new(),
            message: message.into(),
            namespace_terminating: false,
        }
    }

    /// Returns whether the object does not exist (404).
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Returns whether the write failed because of another write (409, `Conflict`).
    pub fn is_conflict(&self) -> bool {
        self.code == 409 && self.reason == "Conflict"
    }

    /// Returns whether an object of that name already exists (409, `AlreadyExists`).
    pub fn is_already_exists(&self) -> bool {
        self.code == 409 && self.reason == "AlreadyExists"
    }
}

impl Action {
    /// Returns the effect of this action's failure on the rest of the pass. Recording an event never fails.
    pub fn on_error(&self) -> OnError {
        match self {
            Self::Read(read) => read.on_error,
            Self::Create(create) => create.on_error,
            Self::Delete(delete) => delete.on_error,
            Self::DeleteCollection(delete) => delete.on_error,
            Self::Patch(patch) => patch.on_error,
            Self::Update(update) => update.on_error,
            Self::Rewrite(rewrite) => rewrite.on_error,
            Self::Local(local) => local.on_error,
            Self::Event(_) => OnError::Ignore,
        }
    }

    /// Returns the number of the plan's part that contains the action, if any.
    pub fn part(&self) -> Option<u32> {
        match self.on_error() {
            OnError::SkipPart(part) => Some(part),
            _ => None,
        }
    }
}

macro_rules! into_action {
    ($($variant:ident($inner:ty)),*) => {$(
        impl From<$inner> for Action {
            fn from(inner: $inner) -> Self {
                Self::$variant(inner)
            }
        }
    )*};
}

into_action!(
    Read(LiveRead),
    Create(Create),
    Delete(Delete),
    DeleteCollection(DeleteCollection),
    Patch(Patch),
    Update(Update),
    Rewrite(Rewrite),
    Event(EventRecord),
    Local(Local)
);
