//! Memory of applied intents, so that an apply that would change nothing is not sent.

use crate::{fast_map::FastMap, plan::Target};
use evenkeel_api::{Kind, Meta};
use std::{
    hash::{BuildHasher, Hash},
    sync::{Mutex, PoisonError},
};

/// Maximum number of remembered applies. Above it, all are forgotten, and each object is applied again once.
const MAX_APPLIED: usize = 200_000;

/// Last intents that a controller applied, by object.
#[derive(Default)]
pub(super) struct Applied {
    hasher: foldhash::fast::RandomState,
    by_target: Mutex<FastMap<Target, Entry>>,
}

/// Fingerprints of an applied intent, and of the object that the server returned for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    intent: u64,
    object: u64,
}

impl Applied {
    /// Returns whether the object is known to have this intent already: it was the last applied intent, and no other write has
    /// changed the object since, except for its status.
    pub(super) fn is_current(&self, target: &Target, intent: &[u8], cached: &Meta) -> bool {
        let object = self.fingerprint(&target.kind, cached);
        let wanted = Entry { intent: self.hash(intent), object };
        self.lock().get(target) == Some(&wanted)
    }

    /// Remembers an intent and the object that the server returned for it.
    pub(super) fn remember(&self, target: Target, intent: &[u8], returned: &Meta) {
        let object = self.fingerprint(&target.kind, returned);
        let entry = Entry { intent: self.hash(intent), object };
        let mut by_target = self.lock();
        if by_target.len() >= MAX_APPLIED {
            by_target.clear();
        }
        by_target.insert(target, entry);
    }

    /// Forgets an object, after another write or its deletion.
    pub(super) fn forget(&self, target: &Target) {
        self.lock().remove(target);
    }

    /// Returns a number that changes with every change of an object except its status. It is the generation if the kind counts
    /// generations, and otherwise the resource version, which changes with every write.
    fn fingerprint(&self, kind: &Kind, meta: &Meta) -> u64 {
        let counts_generations = meta.generation != 0 && !has_constant_generation(kind);
        let version = if counts_generations { "" } else { &*meta.resource_version };
        self.hash(&(
            &*meta.uid,
            meta.generation,
            version,
            (&meta.labels, &meta.annotations),
            (&meta.owners, &meta.finalizers),
        ))
    }

    fn hash(&self, value: &(impl Hash + ?Sized)) -> u64 {
        self.hasher.hash_one(value)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FastMap<Target, Entry>> {
        self.by_target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether objects of this kind always keep their first generation. Of the built-in kinds, that is only PriorityClass.
///
/// Upstream: `priorityClassStrategy`, whose `PrepareForCreate` sets the generation, and whose `PrepareForUpdate` does nothing.
fn has_constant_generation(kind: &Kind) -> bool {
    (&*kind.group, &*kind.kind) == ("scheduling.k8s.io", "PriorityClass")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(generation: i64, version: &str) -> Meta {
        Meta { uid: "u".into(), generation, resource_version: version.into(), ..Meta::default() }
    }

    #[test]
    fn an_intent_is_current_until_somebody_changes_the_object() {
        let applied = Applied::default();
        let target =
            Target::new(Kind::new("apps", "v1", "Deployment", "deployments", true), "a", "b", "");
        assert!(!applied.is_current(&target, b"x", &meta(1, "5")));
        applied.remember(target.clone(), b"x", &meta(1, "5"));
        let labelled = Meta { labels: [("l", "1")].into_iter().collect(), ..meta(1, "6") };
        // intent, object, whether it is current
        let table: [(&[u8], Meta, bool); 5] = [
            (b"x", meta(1, "5"), true),
            (b"x", meta(1, "9"), true),
            (b"y", meta(1, "5"), false),
            (b"x", meta(2, "6"), false),
            (b"x", labelled, false),
        ];
        for (intent, object, current) in table {
            assert_eq!(applied.is_current(&target, intent, &object), current, "{object:?}");
        }
        applied.remember(target.clone(), b"x", &meta(0, "5"));
        assert!(applied.is_current(&target, b"x", &meta(0, "5")));
        assert!(
            !applied.is_current(&target, b"x", &meta(0, "6")),
            "no generation: any write counts"
        );
        applied.forget(&target);
        assert!(!applied.is_current(&target, b"x", &meta(0, "5")));
        let class = Kind::new("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false);
        let class = Target::new(class, "", "high", "");
        applied.remember(class.clone(), b"x", &meta(1, "5"));
        assert!(applied.is_current(&class, b"x", &meta(1, "5")));
        assert!(!applied.is_current(&class, b"x", &meta(1, "6")), "its generation never changes");
    }
}
