//! Types of introspection reports, as they are sent as JSON.

use crate::plan::{Key, Target};
use evenkeel_api::{Kind, time::Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The object of a report or a query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// API group, empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind in CamelCase; empty in a query for objects of any kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace, empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl Subject {
    /// The object of this group, kind, namespace and name.
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let [group, kind, namespace, name] = [group, kind, namespace, name].map(str::to_owned);
        Self { group, kind, namespace, name }
    }

    /// The object of this kind at a queue's key.
    pub fn at(kind: &Kind, key: &Key) -> Self {
        Self::new(&kind.group, &kind.kind, &key.namespace, &key.name)
    }

    /// Whether it may be an object of this kind.
    pub fn is_a(&self, kind: &Kind) -> bool {
        self.kind.is_empty() || (self.kind == kind.kind && self.group == kind.group)
    }

    /// Its key in a queue of objects of its kind.
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

impl From<&Target> for Subject {
    fn from(target: &Target) -> Self {
        Self::new(&target.kind.group, &target.kind.kind, &target.namespace, &target.name)
    }
}

impl fmt::Display for Subject {
    /// `Deployment default/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind.is_empty() { "object" } else { &self.kind };
        write!(f, "{kind} {}", self.key())
    }
}

/// A planner's description of what it observes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// Observed facts, in reading order.
    pub facts: Vec<Fact>,
    /// Reasons why nothing more is done now.
    pub waits: Vec<String>,
    /// Dependent objects, on which other controllers may report.
    pub children: Vec<Subject>,
}

impl Description {
    /// An empty description.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an observed fact.
    pub fn fact(&mut self, what: &str, value: impl fmt::Display) {
        self.facts.push(Fact { what: what.to_owned(), value: value.to_string() });
    }

    /// Adds a reason why nothing more is done now.
    pub fn waits(&mut self, why: impl Into<String>) {
        self.waits.push(why.into());
    }

    /// Adds a dependent object.
    pub fn child(&mut self, child: &Target) {
        self.children.push(Subject::from(child));
    }
}

/// A fact that a controller observes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Name of the fact.
    pub what: String,
    /// Value of the fact, for people.
    pub value: String,
}

/// Report of one controller on one object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReport {
    /// Name of the reporting controller.
    pub controller: String,
    /// The object of the report.
    pub object: Subject,
    /// Whether the object is in the controller's cache.
    pub exists: bool,
    /// Facts that the controller observes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sees: Vec<Fact>,
    /// Next actions, one a line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub would: Vec<String>,
    /// Reasons why it waits, one a line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
    /// Status of the object's key in the controller's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<KeyState>,
    /// The last pass over it with actions or a failure, if it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Pass>,
    /// Objects that the controller manages for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Subject>,
}

/// Status of a key in a queue. No field but `key` is set for a key that is not queued.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyState {
    /// The key, `namespace/name`.
    pub key: String,
    /// When it began to wait for a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Timestamp>,
    /// When a worker began to process it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight_since: Option<Timestamp>,
    /// When its delay ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_until: Option<Timestamp>,
    /// Number of failures in a row.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A queue: how many keys are in each state, and the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueState {
    /// Number of keys that wait for a worker.
    pub ready: usize,
    /// Number of keys that are processed.
    pub in_flight: usize,
    /// Number of delayed keys.
    pub delayed: usize,
    /// Number of keys that failed and have not succeeded since.
    pub backing_off: usize,
    /// Number of keys that wait until the caches show their last writes.
    pub waiting_for_cache: usize,
    /// The first keys of each state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyState>,
}

impl QueueState {
    /// Whether no key is processed or ready.
    pub fn is_idle(&self) -> bool {
        self.ready == 0 && self.in_flight == 0
    }
}

/// Summary of one pass over a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    /// The key, `namespace/name`.
    pub key: String,
    /// Time at which it ended.
    pub at: Timestamp,
    /// Duration in seconds.
    pub seconds: f64,
    /// Writes of the pass, one a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub did: Vec<String>,
    /// Result: `settled`, `again in 9m30s`, `failed`.
    pub ended: String,
    /// Error text of a failed pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A failed pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The key, `namespace/name`.
    pub key: String,
    /// Time at which it ended.
    pub at: Timestamp,
    /// Text of the error.
    pub error: String,
}

/// State of one cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CacheState {
    /// Resource: `pods`, `deployments.apps`.
    pub resource: String,
    /// Label selector, empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub labels: String,
    /// Field selector, empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fields: String,
    /// Whether only metadata is held.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub metadata_only: bool,
    /// Number of cached objects.
    pub objects: usize,
    /// The newest resourceVersion, 0 before the first.
    pub resource_version: u64,
    /// Whether the initial state is complete.
    pub synced: bool,
    /// Error of the last list or watch, if it does not follow the server now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Full report of one controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerReport {
    /// Name of the controller.
    pub name: String,
    /// Kind that it reconciles, such as `Deployment.apps`; empty if that is not one kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Number of workers.
    pub workers: usize,
    /// State of its queue.
    pub queue: QueueState,
    /// State of the caches that it reads.
    pub caches: Vec<CacheState>,
    /// The last passes with actions or a failure, newest first.
    pub passes: Vec<Pass>,
    /// The last failures, newest first.
    pub errors: Vec<Failed>,
    /// Facts that fit no other field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
}

impl ControllerReport {
    /// The summary of this report.
    pub fn summary(self) -> Summary {
        let mut queue = self.queue;
        queue.keys.clear();
        let synced = self.caches.iter().all(|cache| cache.synced);
        let last_error = self.errors.into_iter().next();
        Summary {
            name: self.name,
            kind: self.kind,
            workers: self.workers,
            queue,
            synced,
            last_error,
        }
    }
}

/// Summary of one controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Name of the controller.
    pub name: String,
    /// Kind that it reconciles, such as `Deployment.apps`; empty if that is not one kind.
    #[serde(default)]
    pub kind: String,
    /// Number of workers.
    pub workers: usize,
    /// Its queue, without the keys.
    pub queue: QueueState,
    /// Whether all its caches have synced.
    pub synced: bool,
    /// The last failure, if one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Failed>,
}

/// Summaries of all controllers, and all caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// The time on the program's clock.
    pub now: Timestamp,
    /// Controllers, sorted by name.
    pub controllers: Vec<Summary>,
    /// Caches, in the order of their first request.
    pub caches: Vec<CacheState>,
}
