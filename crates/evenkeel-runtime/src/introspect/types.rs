//! What is told of controllers, as it goes over the wire: plain values, in JSON's camelCase.

use crate::plan::{Key, Target};
use evenkeel_api::{Kind, time::Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An object that somebody asks about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// API group, empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind in CamelCase; empty in a question about objects of whatever kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace, empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
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

/// What a planner says of what it sees, in its own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// What it looked at, in the order in which it is to be read.
    pub facts: Vec<Fact>,
    /// Why there is nothing (more) to do now, or what has to happen first.
    pub waits: Vec<String>,
    /// Objects that it keeps, which other controllers may have something to say of.
    pub children: Vec<Subject>,
}

impl Description {
    /// Nothing said.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact.
    pub fn fact(&mut self, what: &str, value: impl fmt::Display) {
        self.facts.push(Fact { what: what.to_owned(), value: value.to_string() });
    }

    /// Adds a reason to wait.
    pub fn waits(&mut self, why: impl Into<String>) {
        self.waits.push(why.into());
    }

    /// Adds an object that it keeps.
    pub fn child(&mut self, child: &Target) {
        self.children.push(Subject::from(child));
    }
}

/// Something that a controller sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What.
    pub what: String,
    /// Its value, in words.
    pub value: String,
}

/// What one controller has to say of one object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReport {
    /// The controller's name.
    pub controller: String,
    /// The object.
    pub object: Subject,
    /// Whether the controller sees it.
    pub exists: bool,
    /// What it sees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sees: Vec<Fact>,
    /// What it would do next, an action a line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub would: Vec<String>,
    /// Why it waits, a reason a line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
    /// Where its key is in the controller's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<KeyState>,
    /// The last pass over it that did something or failed, if that is remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Pass>,
    /// Objects that it keeps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Subject>,
}

/// Where a key is in a queue. Nothing is set for one that is at rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyState {
    /// The key, `namespace/name`.
    pub key: String,
    /// It could be worked on since this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Timestamp>,
    /// It is being worked on since this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight_since: Option<Timestamp>,
    /// It comes again at this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_until: Option<Timestamp>,
    /// How often it failed in a row.
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
    /// Keys that could be worked on.
    pub ready: usize,
    /// Keys that are being worked on.
    pub in_flight: usize,
    /// Keys that come again at a time.
    pub delayed: usize,
    /// Keys that failed and have not succeeded since.
    pub backing_off: usize,
    /// Keys that wait until a cache shows what they wrote.
    pub parked: usize,
    /// The first keys of each state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyState>,
}

impl QueueState {
    /// Whether nothing is being done, nor could be.
    pub fn is_idle(&self) -> bool {
        self.ready == 0 && self.in_flight == 0
    }
}

/// One pass over a key, as far as it is remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    /// The key, `namespace/name`.
    pub key: String,
    /// When it ended.
    pub at: Timestamp,
    /// Seconds that it took.
    pub seconds: f64,
    /// What was written, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub did: Vec<String>,
    /// How it ended: `settled`, `again in 9m30s`, `failed`.
    pub ended: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A failure that a controller remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The key, `namespace/name`.
    pub key: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub error: String,
}

/// A cache.
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
    /// Objects in it.
    pub objects: usize,
    /// The newest version in it, 0 before there is one.
    pub resource_version: u64,
    /// Whether the initial state is complete.
    pub synced: bool,
    /// Why it does not follow the server just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A controller at length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerReport {
    /// Its name.
    pub name: String,
    /// What it reconciles, `Deployment.apps`; empty where that is not one kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// How many keys it works on at a time.
    pub workers: usize,
    /// Its queue.
    pub queue: QueueState,
    /// What it reads.
    pub caches: Vec<CacheState>,
    /// The last passes that did something or failed, newest first.
    pub passes: Vec<Pass>,
    /// The last failures, newest first.
    pub errors: Vec<Failed>,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
}

impl ControllerReport {
    /// It in short.
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

/// A controller in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// What it reconciles, `Deployment.apps`; empty where that is not one kind.
    #[serde(default)]
    pub kind: String,
    /// How many keys it works on at a time.
    pub workers: usize,
    /// Its queue, without the keys.
    pub queue: QueueState,
    /// Whether all its caches are filled.
    pub synced: bool,
    /// The last failure that it remembers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Failed>,
}

/// All controllers in short, and all caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// The time on the program's clock.
    pub now: Timestamp,
    /// By name.
    pub controllers: Vec<Summary>,
    /// In the order in which they were asked for.
    pub caches: Vec<CacheState>,
}
