//! Watchers by what they select: an event wakes those that may care, and a watcher reads only the events of its scope.
//!
//! The scopes of a collection are recorded while somebody watches them: the revisions of their events, which stay in the ring.
//!
//! Upstream: `indexedWatchers` and `Indexers` of `storage/cacher`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::entry::Entry;
use super::event::Expired;
use super::state::Staged;
use crate::resource::ResourcePrefix;

/// Revisions that are recorded for a scope; more than the ring holds need not be.
const MAX_REVISIONS: usize = 16_384;

/// The part of a collection that is watched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// The whole collection, in all namespaces.
    All,
    /// Objects of one namespace.
    Namespace(Box<str>),
    /// One object, by its key.
    Object(Box<str>),
    /// Objects whose selectable field at this place has this value.
    Field(usize, Box<str>),
}

/// The scopes that are watched, by collection.
#[derive(Debug)]
pub(super) struct Watchers(Mutex<Registry>);

#[derive(Debug)]
struct Registry {
    /// Revision of the last event that was recorded.
    recorded: u64,
    collections: HashMap<ResourcePrefix, Scopes>,
}

/// The watched scopes of a collection.
#[derive(Debug, Default)]
struct Scopes {
    namespaces: Groups,
    objects: Groups,
    fields: Vec<(usize, Groups)>,
}

/// Groups of watchers by namespace, key or value.
type Groups = HashMap<Box<str>, Group>;

/// The watchers of one scope.
#[derive(Debug)]
struct Group {
    watchers: usize,
    signal: Arc<watch::Sender<u64>>,
    /// Revisions of the scope's events, in order.
    revisions: VecDeque<u64>,
    /// All of the scope's events after this revision are recorded.
    floor: u64,
}

/// A watcher's part in its scope, until it is dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    resource_prefix: ResourcePrefix,
    scope: Scope,
    /// The scope's events are recorded from here on.
    pub(super) since: u64,
}

/// Signals to raise to the revision of the last event.
pub(super) type Raised = Vec<Arc<watch::Sender<u64>>>;

impl Scopes {
    fn group(&mut self, scope: &Scope) -> Option<(&mut Groups, Box<str>)> {
        match scope {
            Scope::All => None,
            Scope::Namespace(namespace) => Some((&mut self.namespaces, namespace.clone())),
            Scope::Object(key) => Some((&mut self.objects, key.clone())),
            Scope::Field(at, value) => {
                let found = self.fields.iter().position(|(field, _)| field == at);
                let index = found.unwrap_or_else(|| {
                    self.fields.push((*at, HashMap::new()));
                    self.fields.len() - 1
                });
                self.fields.get_mut(index).map(|(_, groups)| (groups, value.clone()))
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.objects.is_empty() && self.fields.is_empty()
    }

    /// Records an event in the scopes that it touches: those of the object before and after.
    fn record(&mut self, entry: &Entry, previous: Option<&Entry>, raised: &mut Raised) {
        let revision = entry.revision;
        let mut note = |group: Option<&mut Group>| {
            if let Some(group) = group {
                group.record(revision);
                raised.push(group.signal.clone());
            }
        };
        let namespace = entry.key.split_once('/').map_or("", |(namespace, _)| namespace);
        note(self.namespaces.get_mut(namespace));
        note(self.objects.get_mut(&*entry.key));
        for (at, groups) in &mut self.fields {
            let value = entry.selection.field(*at);
            note(groups.get_mut(value));
            let before = previous.map(|previous| previous.selection.field(*at));
            if let Some(before) = before.filter(|before| *before != value) {
                note(groups.get_mut(before));
            }
        }
    }
}

impl Group {
    fn record(&mut self, revision: u64) {
        self.revisions.push_back(revision);
        if self.revisions.len() > MAX_REVISIONS
            && let Some(old) = self.revisions.pop_front()
        {
            self.floor = old;
        }
    }
}

impl Watchers {
    /// Nobody watches; events after `revision` will be recorded.
    pub(super) fn new(revision: u64) -> Self {
        Self(Mutex::new(Registry { recorded: revision, collections: HashMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no scope is recorded.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().collections.is_empty()
    }

    /// Begins to record a scope; `None` for all of a collection, whose events are in the ring as they are.
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

    /// Ends a subscription. A scope without watchers is no longer recorded.
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

    /// Records events in the scopes that are watched. The signals are to be raised once the events can be seen.
    pub(super) fn record<'a>(&self, events: impl Iterator<Item = &'a Staged>) -> Raised {
        let mut raised = Vec::new();
        let mut registry = self.lock();
        for staged in events {
            let event = &staged.event;
            registry.recorded = registry.recorded.max(event.entry.revision);
            if let Some(scopes) = registry.collections.get_mut(&staged.resource_prefix) {
                scopes.record(&event.entry, event.previous.as_deref(), &mut raised);
            }
        }
        raised
    }

    /// Returns the revisions of a scope's events after `at`, a limited number of them.
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
