//! Types of introspection reports, which are sent as JSON.

use crate::plan::{Key, Target};
use evenkeel_api::{Kind, time::Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Object of a report or a query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// API group. Empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind in CamelCase. Empty in a query for objects of any kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace. Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl Subject {
    /// Creates the subject of this group, kind, namespace and name.
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let [group, kind, namespace, name] = [group, kind, namespace, name].map(str::to_owned);
        Self { group, kind, namespace, name }
    }

    /// Returns the subject of this kind at a queue's key.
    pub fn at(kind: &Kind, key: &Key) -> Self {
        Self::new(&kind.group, &kind.kind, &key.namespace, &key.name)
    }

    /// Returns whether the subject may be of this kind.
    pub fn is_a(&self, kind: &Kind) -> bool {
        self.kind.is_empty() || (self.kind == kind.kind && self.group == kind.group)
    }

    /// Returns the subject's key in a queue of its kind.
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
    /// Formats the subject, such as `Deployment default/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind.is_empty() { "object" } else { &self.kind };
        write!(f, "{kind} {}", self.key())
    }
}

/// A planner's description of its observation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// Observed facts, in the order in which they are printed.
    pub facts: Vec<Fact>,
    /// Reasons why the planner takes no further action now.
    pub waits: Vec<String>,
    /// Dependent objects, which other controllers may report on.
    pub children: Vec<Subject>,
}

impl Description {
    /// Creates an empty description.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an observed fact.
    pub fn fact(&mut self, what: &str, value: impl fmt::Display) {
        self.facts.push(Fact { what: what.to_owned(), value: value.to_string() });
    }

    /// Adds a reason why the planner takes no further action now.
    pub fn waits(&mut self, why: impl Into<String>) {
        self.waits.push(why.into());
    }

    /// Adds a dependent object.
    pub fn child(&mut self, child: &Target) {
        self.children.push(Subject::from(child));
    }
}

/// Fact that a controller observes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Name of the fact.
    pub what: String,
    /// Value of the fact, for people.
    pub value: String,
}

/// One controller's report on one object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReport {
    /// Name of the reporting controller.
    pub controller: String,
    /// Name of the controller's cluster. Empty for the program's own cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The object of the report.
    pub object: Subject,
    /// Whether the object is in the controller's cache.
    pub exists: bool,
    /// Facts that the controller observes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sees: Vec<Fact>,
    /// Next actions, one per entry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub would: Vec<String>,
    /// Reasons why the controller waits, one per entry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
    /// Status of the object's key in the controller's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<KeyState>,
    /// The last pass (reconcile) of the object, if it is kept. For planned controllers, the last pass with actions or a
    /// failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Pass>,
    /// Objects that the controller manages for the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Subject>,
}

/// Status of a key in a queue. If the key is not queued, the times are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyState {
    /// The key, `namespace/name`.
    pub key: String,
    /// Time when the key began to wait for a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Timestamp>,
    /// Time when a worker began to process the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight_since: Option<Timestamp>,
    /// Time when the key's delay ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_until: Option<Timestamp>,
    /// Number of consecutive failures.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Reason why the key is queued, for reconcile functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// State of a queue: the number of keys in each state, and the first keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueState {
    /// Number of keys that wait for a worker.
    pub ready: usize,
    /// Number of keys that workers are processing.
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
    /// Returns whether no key is ready or being processed.
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
    /// Time when the pass ended.
    pub at: Timestamp,
    /// Duration in seconds.
    pub seconds: f64,
    /// Reason why the key was queued, for reconcile functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Writes of the pass, one per entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub did: Vec<String>,
    /// Result: `settled`, `again in 9m30s`, `failed`.
    pub ended: String,
    /// Error message of a failed reconcile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Failed pass of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The key, `namespace/name`.
    pub key: String,
    /// Time when the pass ended.
    pub at: Timestamp,
    /// Message of the error.
    pub error: String,
}

/// State of one cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CacheState {
    /// Resource: `pods`, `deployments.apps`.
    pub resource: String,
    /// Name of the cluster. Empty for the program's own cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Label selector. Empty selects all objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub labels: String,
    /// Field selector. Empty selects all objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fields: String,
    /// Whether the cache only contains metadata.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub metadata_only: bool,
    /// Number of cached objects.
    pub objects: usize,
    /// The newest resourceVersion, or 0 before the first list.
    pub resource_version: u64,
    /// Whether the initial state is complete.
    pub synced: bool,
    /// Error of the last list or watch, if the cache does not follow the server now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Full report of one controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerReport {
    /// Name of the controller.
    pub name: String,
    /// Name of the controller's cluster. Empty for the program's own cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Kind that the controller reconciles, such as `Deployment.apps`. Empty if it reconciles no single kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Number of workers.
    pub workers: usize,
    /// State of the controller's queue.
    pub queue: QueueState,
    /// State of the caches that the controller reads.
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
    /// Returns the summary of this report.
    pub fn summary(self) -> Summary {
        let mut queue = self.queue;
        queue.keys.clear();
        let synced = self.caches.iter().all(|cache| cache.synced);
        let last_error = self.errors.into_iter().next();
        Summary {
            name: self.name,
            cluster: self.cluster,
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
    /// Name of the controller's cluster. Empty for the program's own cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Kind that the controller reconciles, such as `Deployment.apps`. Empty if it reconciles no single kind.
    #[serde(default)]
    pub kind: String,
    /// Number of workers.
    pub workers: usize,
    /// State of the controller's queue, without the keys.
    pub queue: QueueState,
    /// Whether all caches of the controller have synced.
    pub synced: bool,
    /// The last failure, if one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Failed>,
}

/// Summaries of all controllers, and the state of all caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// Current time on the program's clock.
    pub now: Timestamp,
    /// Summaries of the controllers, sorted by cluster and name. Those of the program's own cluster are first.
    pub controllers: Vec<Summary>,
    /// States of the caches, by cluster and in the order of first requests.
    pub caches: Vec<CacheState>,
}
