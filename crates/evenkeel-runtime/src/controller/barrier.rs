//! Keeps a key from being planned before the caches show what its own writes did (KEP-5647's rule, for every controller).
//!
//! A key that comes too early is parked. It is released by the cache event that it waits for, or by a slow sweep where
//! no event tells (a bookmark moved the version, the limit has passed).

use super::track::{Awaited, Behind, Object, View};
use crate::{
    clock::Clock,
    plan::{Key, Target},
    queue::{Priority, Queue},
};
use evenkeel_api::Kind;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// How often parked keys are looked at without an event.
const SWEEP: Duration = Duration::from_secs(1);

/// Uid of an object, and whether it is being deleted.
type Find = dyn Fn(&str, &str) -> Option<(Arc<str>, bool)> + Send + Sync;

/// How the barrier looks into one cache.
pub(super) struct Window {
    /// The last version that the cache has seen, 0 for none.
    pub(super) version: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Finds an object by namespace and name.
    pub(super) find: Box<Find>,
}

/// The caches that a controller declared.
#[derive(Default)]
pub(super) struct Windows(pub(super) HashMap<Kind, Window>);

impl View for Windows {
    fn version(&self, kind: &Kind) -> Option<u64> {
        self.0.get(kind).map(|window| (window.version)()).filter(|version| *version != 0)
    }

    fn alive(&self, object: &Object) -> bool {
        let Some(window) = self.0.get(&object.kind) else { return false };
        let found = (window.find)(&object.namespace, &object.name);
        found.is_some_and(|(uid, deleting)| {
            !deleting && (object.uid.is_empty() || uid == object.uid)
        })
    }
}

pub(super) struct Barrier {
    clock: Clock,
    windows: OnceLock<Windows>,
    queue: Queue<Key>,
    state: Mutex<State>,
    /// Something is parked: the sweep has work.
    parked: Notify,
}

#[derive(Default)]
struct State {
    awaited: HashMap<Key, Awaited>,
    parked: HashMap<Key, Behind>,
    by_version: HashMap<Kind, BTreeMap<u64, Vec<Key>>>,
    by_object: HashMap<Object, Key>,
}

impl Barrier {
    pub(super) fn new(queue: Queue<Key>, clock: Clock) -> Self {
        let (windows, parked) = (OnceLock::new(), Notify::new());
        Self { clock, windows, queue, state: Mutex::default(), parked }
    }

    /// Sets the caches it looks at; before the first key is taken.
    pub(super) fn look_through(&self, windows: Windows) {
        // Set once, when the controller is built.
        let _ = self.windows.set(windows);
    }

    /// A write of this key to this kind returned this version.
    pub(super) fn wrote(&self, key: &Key, kind: &Kind, version: u64) {
        if version != 0 && self.watches(kind) {
            let mut state = self.lock();
            state.awaited.entry(key.clone()).or_default().wrote(
                kind,
                version,
                self.clock.instant(),
            );
        }
    }

    /// The deletion of `target` by this key was accepted.
    pub(super) fn deleted(&self, key: &Key, target: &Target) {
        if self.watches(&target.kind) {
            let Target { kind, namespace, name, uid } = target.clone();
            let object = Object { kind, namespace, name, uid };
            self.lock()
                .awaited
                .entry(key.clone())
                .or_default()
                .deleted(object, self.clock.instant());
        }
    }

    /// The key's object is gone: nothing of it matters any more.
    pub(super) fn forget(&self, key: &Key) {
        let mut state = self.lock();
        state.awaited.remove(key);
        state.unpark(key);
    }

    /// Whether a key may be planned. If not, it is parked, and the kind it waits for is returned.
    pub(super) fn admit(&self, key: &Key) -> Result<(), Kind> {
        let mut state = self.lock();
        let Some(behind) = self.behind(&mut state, key) else {
            state.unpark(key);
            return Ok(());
        };
        let kind = behind.kind().clone();
        state.park(key, behind);
        drop(state);
        self.parked.notify_one();
        Err(kind)
    }

    /// What a key is parked for, and how far the cache is (0 where that is not asked for a version).
    pub(super) fn waits(&self, key: &Key) -> Option<(Behind, u64)> {
        let behind = self.lock().parked.get(key).cloned()?;
        let seen = self.windows.get().and_then(|windows| windows.version(behind.kind()));
        Some((behind, seen.unwrap_or(0)))
    }

    /// How many keys are parked.
    pub(super) fn n_parked(&self) -> usize {
        self.lock().parked.len()
    }

    /// Whether a key is parked, so that adding it would be of no use.
    pub(super) fn holds(&self, key: &Key) -> bool {
        self.lock().parked.contains_key(key)
    }

    /// The cache of `kind` has moved, by an event about this object: releases who waited for it.
    pub(super) fn moved(&self, kind: &Kind, namespace: &str, name: &str, uid: &str) {
        let released = {
            let mut state = self.lock();
            if state.parked.is_empty() {
                return;
            }
            let version = self.windows.get().and_then(|windows| windows.version(kind));
            let candidates = state.candidates(kind, version, namespace, name, uid);
            self.release(&mut state, candidates)
        };
        self.enqueue(released);
    }

    /// Looks at parked keys from time to time, for as long as there are any. Never ends.
    pub(super) async fn sweep(&self) {
        loop {
            self.parked.notified().await;
            while !self.lock().parked.is_empty() {
                tokio::time::sleep(SWEEP).await;
                let released = {
                    let mut state = self.lock();
                    let all = state.parked.keys().cloned().collect();
                    self.release(&mut state, all)
                };
                self.enqueue(released);
            }
        }
    }

    fn watches(&self, kind: &Kind) -> bool {
        self.windows.get().is_some_and(|windows| windows.0.contains_key(kind))
    }

    fn behind(&self, state: &mut State, key: &Key) -> Option<Behind> {
        let windows = self.windows.get()?;
        let behind = state.awaited.get_mut(key)?.behind(windows, self.clock.instant());
        if behind.is_none() {
            state.awaited.remove(key);
        }
        behind
    }

    /// Those of `candidates` that wait for nothing any more; the others are parked for what they wait for now.
    fn release(&self, state: &mut State, mut candidates: Vec<Key>) -> Vec<Key> {
        candidates.retain(|key| {
            let behind = self.behind(state, key);
            state.unpark(key);
            if let Some(behind) = behind {
                state.park(key, behind);
                return false;
            }
            true
        });
        candidates.sort_unstable();
        candidates
    }

    fn enqueue(&self, keys: Vec<Key>) {
        for key in keys {
            self.queue.add(key, Priority::NORMAL);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn park(&mut self, key: &Key, behind: Behind) {
        if self.parked.get(key) == Some(&behind) {
            return;
        }
        self.unpark(key);
        match &behind {
            Behind::Version(kind, version) => {
                let versions = self.by_version.entry(kind.clone()).or_default();
                versions.entry(*version).or_default().push(key.clone());
            }
            Behind::Deletion(object) => {
                self.by_object.insert(object.clone(), key.clone());
            }
        }
        self.parked.insert(key.clone(), behind);
    }

    fn unpark(&mut self, key: &Key) {
        match self.parked.remove(key) {
            Some(Behind::Version(kind, version)) => {
                let Some(versions) = self.by_version.get_mut(&kind) else { return };
                if let Some(keys) = versions.get_mut(&version) {
                    keys.retain(|present| present != key);
                    if keys.is_empty() {
                        versions.remove(&version);
                    }
                }
            }
            Some(Behind::Deletion(object)) => {
                self.by_object.remove(&object);
            }
            None => {}
        }
    }

    /// Keys whose wait may be over now that `kind` is at `version` and something happened to this object.
    fn candidates(
        &self,
        kind: &Kind,
        version: Option<u64>,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Vec<Key> {
        let mut keys = Vec::new();
        if let (Some(versions), Some(version)) = (self.by_version.get(kind), version) {
            keys.extend(versions.range(..=version).flat_map(|(_, keys)| keys.iter().cloned()));
        }
        if !self.by_object.is_empty() {
            let (kind, namespace, name) = (kind.clone(), Arc::from(namespace), Arc::from(name));
            let object = Object { kind, namespace, name, uid: Arc::from(uid) };
            keys.extend(self.by_object.get(&object).cloned());
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

    struct Fixture {
        barrier: Barrier,
        queue: Queue<Key>,
        version: Arc<AtomicU64>,
        alive: Arc<Mutex<bool>>,
    }

    fn fixture() -> Fixture {
        let (queue, version, alive) = (
            Queue::unnamed(&Clock::system()),
            Arc::new(AtomicU64::new(10)),
            Arc::new(Mutex::new(true)),
        );
        let barrier = Barrier::new(queue.clone(), Clock::system());
        let (seen, shown) = (Arc::clone(&version), Arc::clone(&alive));
        let window = Window {
            version: Box::new(move || seen.load(Ordering::SeqCst)),
            find: Box::new(move |_, _| shown.lock().unwrap().then(|| (Arc::from("u"), false))),
        };
        barrier.look_through(Windows(HashMap::from([(PODS, window)])));
        Fixture { barrier, queue, version, alive }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_its_version_and_is_released_by_the_event() {
        let f = fixture();
        let (key, other) = (Key::new("ns", "a"), Key::new("ns", "b"));
        f.barrier.wrote(&key, &PODS, 12);
        assert_eq!(f.barrier.admit(&key), Err(PODS));
        assert_eq!(f.barrier.admit(&other), Ok(()));
        assert!(f.barrier.holds(&key));
        f.version.store(11, Ordering::SeqCst);
        f.barrier.moved(&PODS, "ns", "x", "");
        assert!(f.queue.is_empty());
        f.version.store(12, Ordering::SeqCst);
        f.barrier.moved(&PODS, "ns", "x", "");
        assert_eq!(f.queue.next().await, Some(key.clone()));
        assert_eq!(f.barrier.admit(&key), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_its_deletions() {
        let f = fixture();
        let key = Key::new("ns", "a");
        f.barrier.deleted(&key, &Target::new(PODS, "ns", "pod", "u"));
        assert_eq!(f.barrier.admit(&key), Err(PODS));
        *f.alive.lock().unwrap() = false;
        f.barrier.moved(&PODS, "ns", "another", "u");
        assert!(f.queue.is_empty());
        f.barrier.moved(&PODS, "ns", "pod", "u");
        assert_eq!(f.queue.next().await, Some(key));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bookmark_is_noticed_by_the_sweep() {
        let f = fixture();
        let key = Key::new("ns", "a");
        f.barrier.wrote(&key, &PODS, 12);
        assert_eq!(f.barrier.admit(&key), Err(PODS));
        f.version.store(12, Ordering::SeqCst);
        let start = Clock::system().instant();
        tokio::select! {
            () = f.barrier.sweep() => {}
            next = f.queue.next() => assert_eq!(next, Some(key)),
        }
        assert_eq!(start.elapsed(), SWEEP);
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_key_waits_for_nothing() {
        let f = fixture();
        let key = Key::new("ns", "a");
        f.barrier.wrote(&key, &PODS, 12);
        assert_eq!(f.barrier.admit(&key), Err(PODS));
        f.barrier.forget(&key);
        assert!(!f.barrier.holds(&key));
        assert_eq!(f.barrier.admit(&key), Ok(()));
    }
}
