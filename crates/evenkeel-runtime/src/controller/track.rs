//! Writes of one key that the caches do not show yet. Contains no I/O; callers provide the time.

use evenkeel_api::Kind;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Maximum time that a key waits, like upstream's expectations (`ExpectationsTimeout`).
pub(super) const MAX_WAIT: Duration = Duration::from_secs(5 * 60);

/// The barrier's view of the caches.
pub(super) trait View {
    /// Returns the last observed version of a watch, or 0 before its first list, for which no key waits. `None` means that
    /// there is no such watch.
    fn version(&self, watch: &Watch) -> Option<u64>;
    /// Returns whether the cache still shows this object as alive.
    fn is_alive(&self, object: &Object) -> bool;
}

/// Watch of a kind in a namespace. The namespace is empty if the watch is of all namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Watch {
    pub(super) kind: Kind,
    pub(super) namespace: Arc<str>,
    /// Distinguishes the caches of one kind.
    pub(super) cache: usize,
}

/// Object whose deletion was requested.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
}

/// Write or deletion that a cache does not show yet, so that its key cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MissingWrite {
    /// The cache's watch has not reached this version.
    Version(Watch, u64),
    /// The cache still shows this object as alive.
    Deletion(Object),
}

impl MissingWrite {
    pub(super) fn kind(&self) -> &Kind {
        match self {
            Self::Version(watch, _) => &watch.kind,
            Self::Deletion(object) => &object.kind,
        }
    }
}

/// A key's own writes that the caches have yet to show.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Newest version that a write to each watch's objects returned, with the time of the write.
    versions: Vec<(Watch, u64, Instant)>,
    /// Deleted objects, with the time of the deletion.
    deletions: Vec<(Object, Instant)>,
}

impl Awaited {
    /// Records the version that a write to an object of this watch returned.
    pub(super) fn wrote(&mut self, watch: &Watch, version: u64, now: Instant) {
        match self.versions.iter_mut().find(|(known, ..)| known == watch) {
            Some((_, newest, since)) if *newest < version => (*newest, *since) = (version, now),
            Some(_) => {}
            None => self.versions.push((watch.clone(), version, now)),
        }
    }

    /// Records that the server accepted the deletion of this object.
    pub(super) fn deleted(&mut self, object: Object, now: Instant) {
        self.deletions.push((object, now));
    }

    /// Returns whether no write is left. A write whose watch has no version yet stays, but delays nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.deletions.is_empty()
    }

    /// Drops the writes that the caches show, and those older than [`MAX_WAIT`]. Returns the first remaining write or
    /// deletion, if any.
    pub(super) fn first_missing(&mut self, view: &impl View, now: Instant) -> Option<MissingWrite> {
        let has_expired = |since: &Instant| now.saturating_duration_since(*since) >= MAX_WAIT;
        let mut missing = None;
        self.versions.retain(|(watch, version, since)| {
            let seen = view.version(watch);
            let is_shown = seen.is_none_or(|seen| seen >= *version);
            let remains = !is_shown && !has_expired(since);
            // A watch without a list delays nothing.
            if remains && seen != Some(0) && missing.is_none() {
                missing = Some(MissingWrite::Version(watch.clone(), *version));
            }
            remains
        });
        if missing.is_some() {
            return missing;
        }
        // Check from the end, so that most calls need a single lookup.
        while let Some((object, since)) = self.deletions.last() {
            if !has_expired(since) && view.is_alive(object) {
                return Some(MissingWrite::Deletion(object.clone()));
            }
            self.deletions.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::collections::{HashMap, HashSet};

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);
    const NODES: Kind = Kind::new("", "v1", "Node", "nodes", false);

    /// Caches with their versions, and the names of the objects that they show as alive.
    #[derive(Default)]
    struct FakeCaches {
        versions: HashMap<Watch, u64>,
        alive: HashSet<Arc<str>>,
    }

    impl View for FakeCaches {
        fn version(&self, watch: &Watch) -> Option<u64> {
            self.versions.get(watch).copied()
        }
        fn is_alive(&self, object: &Object) -> bool {
            self.alive.contains(&object.name)
        }
    }

    fn watch(kind: Kind, namespace: &str) -> Watch {
        Watch { kind, namespace: namespace.into(), cache: 0 }
    }

    fn pod(name: &str) -> Object {
        Object { kind: PODS, namespace: "default".into(), name: name.into(), uid: "u".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_greatest_version_of_each_watched_kind_is_awaited() {
        let (mut awaited, mut caches, now) =
            (Awaited::default(), FakeCaches::default(), Clock::system().instant());
        let (pods, nodes) = (watch(PODS, ""), watch(NODES, ""));
        caches.versions.insert(pods.clone(), 5);
        awaited.wrote(&pods, 7, now);
        awaited.wrote(&pods, 9, now);
        awaited.wrote(&pods, 8, now);
        awaited.wrote(&nodes, 100, now);
        let missing = awaited.first_missing(&caches, now);
        assert_eq!(missing, Some(MissingWrite::Version(pods.clone(), 9)));
        caches.versions.insert(pods, 9);
        assert_eq!(awaited.first_missing(&caches, now), None, "nobody watches nodes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_before_the_first_list_is_awaited_after_it() {
        let (mut awaited, mut caches, now) =
            (Awaited::default(), FakeCaches::default(), Clock::system().instant());
        let pods = watch(PODS, "");
        caches.versions.insert(pods.clone(), 0);
        awaited.wrote(&pods, 7, now);
        assert_eq!(awaited.first_missing(&caches, now), None, "there is nothing to read yet");
        assert!(!awaited.is_empty());
        caches.versions.insert(pods.clone(), 6);
        let missing = awaited.first_missing(&caches, now);
        assert_eq!(missing, Some(MissingWrite::Version(pods.clone(), 7)), "the list was older");
        caches.versions.insert(pods, 7);
        assert_eq!(awaited.first_missing(&caches, now), None);
        assert!(awaited.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_awaited_in_its_own_namespace() {
        let (mut awaited, mut caches, now) =
            (Awaited::default(), FakeCaches::default(), Clock::system().instant());
        let (a, b) = (watch(PODS, "a"), watch(PODS, "b"));
        caches.versions.extend([(a.clone(), 5), (b.clone(), 90)]);
        awaited.wrote(&a, 7, now);
        awaited.wrote(&b, 80, now);
        let missing = awaited.first_missing(&caches, now);
        assert_eq!(missing, Some(MissingWrite::Version(a.clone(), 7)));
        caches.versions.insert(a, 7);
        assert_eq!(awaited.first_missing(&caches, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_are_awaited_until_the_cache_shows_them() {
        let (mut awaited, mut caches, now) =
            (Awaited::default(), FakeCaches::default(), Clock::system().instant());
        caches.alive.extend(["a".into(), "b".into()]);
        for name in ["a", "b", "gone"] {
            awaited.deleted(pod(name), now);
        }
        assert_eq!(awaited.first_missing(&caches, now), Some(MissingWrite::Deletion(pod("b"))));
        caches.alive.remove("b");
        assert_eq!(awaited.first_missing(&caches, now), Some(MissingWrite::Deletion(pod("a"))));
        caches.alive.clear();
        assert_eq!(awaited.first_missing(&caches, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_awaited_at_most_five_minutes() {
        let (mut awaited, mut caches, now) =
            (Awaited::default(), FakeCaches::default(), Clock::system().instant());
        caches.versions.insert(watch(PODS, ""), 1);
        caches.alive.insert("a".into());
        awaited.wrote(&watch(PODS, ""), 2, now);
        awaited.deleted(pod("a"), now);
        assert!(awaited.first_missing(&caches, now + MAX_WAIT - Duration::from_secs(1)).is_some());
        assert_eq!(awaited.first_missing(&caches, now + MAX_WAIT), None);
    }
}
