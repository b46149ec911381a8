//! Reasons why keys are in the queue of a reconcile function, for reports.

use crate::{
    cache::CacheEvent,
    cache::Object,
    fast_map::{FastMap, shrink_if_sparse},
    plan::Key,
};
use evenkeel_api::{Kind, Text};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Reason why a key is in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// An event of a cache.
    Event(Arc<Event>),
    /// A stream of keys, or another part of the program.
    Source,
    /// A failed pass.
    Retry,
    /// A pass that requested another pass.
    Again,
}

/// Event of a cache, without its object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    kind: Kind,
    namespace: Text,
    name: Text,
    change: &'static str,
}

impl Event {
    pub(super) fn of(kind: &Kind, event: &CacheEvent<dyn Object>) -> Self {
        let change = match event {
            CacheEvent::Added { initial: true, .. } => "was listed",
            CacheEvent::Added { .. } => "was added",
            CacheEvent::Updated { old, new }
                if old.meta().resource_version == new.meta().resource_version =>
            {
                "was resynced"
            }
            CacheEvent::Updated { .. } => "was updated",
            CacheEvent::Deleted(_) => "was deleted",
        };
        let meta = event.object().meta();
        let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
        Self { kind: kind.clone(), namespace, name, change }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => {
                let Event { kind, namespace, name, change } = &**event;
                let slash = if namespace.is_empty() { "" } else { "/" };
                write!(f, "{} {namespace}{slash}{name} {change}", kind.kind)
            }
            Self::Source => f.write_str("a source named the key"),
            Self::Retry => f.write_str("the last pass failed"),
            Self::Again => f.write_str("the last pass asked for another one"),
        }
    }
}

/// First cause of each key since its last pass (one reconcile). Holds a key only while it is in the queue.
#[derive(Debug, Default)]
pub(super) struct Causes(Mutex<FastMap<Key, Cause>>);

impl Causes {
    /// Records the cause of a key. The first cause stays, but an event replaces the end of a delay.
    pub(super) fn record(&self, key: &Key, cause: Cause) {
        let mut causes = self.lock();
        match causes.get_mut(key) {
            Some(known @ (Cause::Retry | Cause::Again)) => *known = cause,
            Some(_) => {}
            None => {
                causes.insert(key.clone(), cause);
            }
        }
    }

    /// Returns the cause of a key in the queue.
    pub(super) fn get(&self, key: &Key) -> Option<Cause> {
        self.lock().get(key).cloned()
    }

    /// Removes and returns the cause of a key whose pass begins.
    pub(super) fn take(&self, key: &Key) -> Option<Cause> {
        let mut causes = self.lock();
        let cause = causes.remove(key);
        shrink_if_sparse(&mut causes);
        cause
    }

    fn lock(&self) -> MutexGuard<'_, FastMap<Key, Cause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str) -> Cause {
        Cause::Event(Arc::new(Event {
            kind: Kind::new("", "v1", "Secret", "secrets", true),
            namespace: "ns".into(),
            name: name.into(),
            change: "was updated",
        }))
    }

    #[test]
    fn the_first_cause_stays_but_an_event_precedes_a_delay() {
        let key = Key::new("ns", "a");
        let table = [
            (vec![event("x"), event("y")], "Secret ns/x was updated"),
            (vec![Cause::Retry, event("y")], "Secret ns/y was updated"),
            (vec![event("x"), Cause::Again], "Secret ns/x was updated"),
            (vec![Cause::Again], "the last pass asked for another one"),
            (vec![Cause::Source, event("y")], "a source named the key"),
        ];
        for (recorded, expected) in table {
            let causes = Causes::default();
            recorded.into_iter().for_each(|cause| causes.record(&key, cause));
            assert_eq!(causes.get(&key).map(|cause| cause.to_string()).as_deref(), Some(expected));
            assert!(causes.take(&key).is_some() && causes.take(&key).is_none());
        }
    }
}
