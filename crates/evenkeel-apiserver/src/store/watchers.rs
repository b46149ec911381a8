//! Watchers by scope: an event wakes only the watchers whose scope contains its object, and a watcher reads only the
//! events of its scope.
//!
//! While a scope has watchers, the store records the revisions of its events. The events themselves are in the ring of
//! the collection.
//!
//! Upstream: `indexedWatchers` and `Indexers` of `storage/cacher`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_tasks::watch;

use super::entry::Entry;
use super::event::Expired;
use super::state::Staged;
use crate::resource::ResourcePrefix;

/// Maximum number of recorded revisions per scope, because the ring does not hold more events.
const MAX_REVISIONS: usize = 16_384;

/// Part of a collection that a watcher may watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// The whole collection, in all namespaces.
    All,
    /// All objects of one namespace.
    Namespace(Box<str>),
    /// Object with this key.
    Object(Box<str>),
    /// Objects whose selectable field with this index has this value.
    Field(usize, Box<str>),
}

/// Watched scopes by collection.
#[derive(Debug)]
pub(super) struct Watchers(Mutex<Registry>);

/// Watched scopes of all collections.
#[derive(Debug)]
struct Registry {
    /// Revision of the last recorded event.
    recorded: u64,
    collections: HashMap<ResourcePrefix, Scopes>,
}

/// Watched scopes of a collection.
#[derive(Debug, Default)]
struct Scopes {
    /// Watched scopes by namespace.
    namespaces: Groups,
    /// Watched scopes by the object's key.
    objects: Groups,
    /// Watched scopes by the value of a selectable field, for each watched field's index.
    fields: Vec<(usize, Groups)>,
}

/// Groups of watchers by namespace, key or value.
type Groups = HashMap<Box<str>, Group>;

/// Watchers of one scope.
#[derive(Debug)]
struct Group {
    /// Number of watchers.
    watchers: usize,
    signal: Arc<watch::Sender<u64>>,
    /// Revisions of the scope's events, in order.
    revisions: VecDeque<u64>,
    /// Revision after which all events of the scope are recorded.
    floor: u64,
}

/// Subscription of a watcher to its scope.
#[derive(Debug)]
pub(super) struct Subscription {
    resource_prefix: ResourcePrefix,
    scope: Scope,
    /// Revision after which the scope's events are recorded.
    pub(super) since: u64,
}

/// Signals that the caller sets to the revision of the last event.
pub(super) type ScopeSignals = Vec<Arc<watch::Sender<u64>>>;

impl Scopes {
    /// Returns the groups of the scope's kind, and the key of the scope's group among them.
    fn group(&mut self, scope: &Scope) -> Option<(&mut Groups, Box<str>)> {
        match scope {
            Scope::All => None,
            Scope::Namespace(namespace) => Some((&mut self.namespaces, namespace.clone())),
            Scope::Object(key) => Some((&mut self.objects, key.clone())),
            Scope::Field(field, value) => {
                let found = self.fields.iter().position(|(known, _)| known == field);
                let index = found.unwrap_or_else(|| {
                    self.fields.push((*field, HashMap::new()));
                    self.fields.len() - 1
                });
                self.fields.get_mut(index).map(|(_, groups)| (groups, value.clone()))
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.objects.is_empty() && self.fields.is_empty()
    }

    /// Records an event in the scopes of the object before and after the change.
    fn record(&mut self, entry: &Entry, previous: Option<&Entry>, signals: &mut ScopeSignals) {
        let revision = entry.revision;
        let mut record = |group: Option<&mut Group>| {
            if let Some(group) = group {
                group.record(revision);
                signals.push(group.signal.clone());
            }
        };
        let namespace = entry.namespace();
        record(self.namespaces.get_mut(namespace));
        record(self.objects.get_mut(&*entry.key));
        for (field, groups) in &mut self.fields {
            let value = entry.selection.field(*field);
            record(groups.get_mut(value));
            let Some(previous) = previous else { continue };
            let previous_value = previous.selection.field(*field);
            if previous_value != value {
                record(groups.get_mut(previous_value));
            }
        }
    }
}

impl Group {
    fn record(&mut self, revision: u64) {
        // One transaction of etcd may write several objects of a scope at one revision.
        if self.revisions.back() == Some(&revision) {
            return;
        }
        self.revisions.push_back(revision);
        if self.revisions.len() > MAX_REVISIONS
            && let Some(old) = self.revisions.pop_front()
        {
            self.floor = old;
        }
    }
}

impl Watchers {
    /// Creates a registry without watchers, which records events after `revision`.
    pub(super) fn new(revision: u64) -> Self {
        Self(Mutex::new(Registry { recorded: revision, collections: HashMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no scope is recorded.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().collections.is_empty()
    }

    /// Starts to record a scope. Returns `None` for a whole collection, whose events are all in the ring.
    pub(super) fn subscribe(
        &self,
        resource_prefix: &ResourcePrefix,
        scope: &Scope,
    ) -> Option<(Subscription, watch::Receiver<u64>)> {
        if *scope == Scope::All {
            return None;
        }
        let mut registry = self.lock();
        let since = registry.recorded;
        let scopes = registry.collections.entry(resource_prefix.clone()).or_default();
        let (groups, value) = scopes.group(scope)?;
        let group = groups.entry(value).or_insert_with(|| Group {
            watchers: 0,
            signal: Arc::new(watch::Sender::new(since)),
            revisions: VecDeque::new(),
            floor: since,
        });
        group.watchers += 1;
        let signal = group.signal.subscribe();
        let (resource_prefix, scope) = (resource_prefix.clone(), scope.clone());
        Some((Subscription { resource_prefix, scope, since }, signal))
    }

    /// Ends a subscription. Recording of a scope ends with its last watcher.
    pub(super) fn unsubscribe(&self, subscription: &Subscription) {
        let mut registry = self.lock();
        let Some(scopes) = registry.collections.get_mut(&subscription.resource_prefix) else {
            return;
        };
        if let Some((groups, value)) = scopes.group(&subscription.scope)
            && let Some(group) = groups.get_mut(&value)
        {
            group.watchers -= 1;
            if group.watchers == 0 {
                groups.remove(&value);
            }
        }
        scopes.fields.retain(|(_, groups)| !groups.is_empty());
        if scopes.is_empty() {
            registry.collections.remove(&subscription.resource_prefix);
        }
    }

    /// Records events in the watched scopes. The caller sets the returned signals when the events are visible.
    pub(super) fn record<'a>(&self, events: impl Iterator<Item = &'a Staged>) -> ScopeSignals {
        let mut signals = Vec::new();
        let mut registry = self.lock();
        for staged in events {
            let event = &staged.event;
            registry.recorded = registry.recorded.max(event.entry.revision);
            if let Some(scopes) = registry.collections.get_mut(&staged.resource_prefix) {
                scopes.record(&event.entry, event.previous.as_deref(), &mut signals);
            }
        }
        signals
    }

    /// Forgets the events up to a revision in all scopes, so that watchers that have not read them expire. The caller
    /// sets the returned signals.
    pub(super) fn expire(&self, revision: u64) -> ScopeSignals {
        let mut registry = self.lock();
        registry.recorded = registry.recorded.max(revision);
        let scopes = registry.collections.values_mut();
        let groups = scopes.flat_map(|scopes| {
            let fields = scopes.fields.iter_mut().map(|(_, groups)| groups);
            fields.chain([&mut scopes.namespaces, &mut scopes.objects])
        });
        let expire = |group: &mut Group| {
            group.revisions.clear();
            group.floor = revision;
            group.signal.clone()
        };
        groups.flat_map(HashMap::values_mut).map(expire).collect()
    }

    /// Returns up to `limit` revisions of a scope's events after `at`.
    pub(super) fn after(
        &self,
        subscription: &Subscription,
        at: u64,
        limit: usize,
    ) -> Result<Vec<u64>, Expired> {
        let mut registry = self.lock();
        let scopes = registry.collections.get_mut(&subscription.resource_prefix).ok_or(Expired)?;
        let (groups, value) = scopes.group(&subscription.scope).ok_or(Expired)?;
        let group = groups.get(&value).ok_or(Expired)?;
        if at < group.floor {
            return Err(Expired);
        }
        let begin = group.revisions.partition_point(|revision| *revision <= at);
        Ok(group.revisions.range(begin..).take(limit).copied().collect())
    }
}
