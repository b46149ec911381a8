//! Barrier that delays the next pass over a key until the caches show the key's own writes: the rule of KEP-5647, here
//! for all controllers.
//!
//! A key whose writes the caches do not show yet waits in the barrier. The awaited cache event returns the key to the
//! queue. A sweep every second returns keys without an event: a bookmark advanced the version, or the time limit
//! passed.
//!
//! Upstream: `ConsistencyStore`.

use super::track::{Awaited, Behind, Object, View};
use crate::{
    cache::Informer,
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

/// Interval of the sweep, while keys wait.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Looks up an object by namespace and name. Returns its uid, and whether it is being deleted.
type Find = dyn Fn(&str, &str) -> Option<(Arc<str>, bool)> + Send + Sync;

/// Access of the barrier to one cache.
struct Window {
    /// Returns the cache's resource version, or 0 before the first list.
    version: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Looks up an object by namespace and name.
    find: Box<Find>,
}

/// Windows of the caches that a controller declared.
#[derive(Default)]
pub(super) struct Windows(HashMap<Kind, Window>);

impl Windows {
    pub(super) fn of(caches: &[Arc<Informer>]) -> Self {
        // Of several caches of one kind, the barrier uses the first one, which is inserted last.
        let windows = caches.iter().rev();
        Self(windows.map(|cache| (cache.scope().kind.clone(), Window::of(cache))).collect())
    }
}

impl Window {
    fn of(cache: &Arc<Informer>) -> Self {
        let (versions, objects) = (Arc::clone(cache), Arc::clone(cache));
        Self {
            version: Box::new(move || versions.version()),
            find: Box::new(move |namespace, name| {
                let object = objects.get(namespace, name)?;
                let meta = object.meta();
                Some((Arc::from(&*meta.uid), meta.deleting()))
            }),
        }
    }
}

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

/// Read-your-writes barrier of one controller, with the keys whose writes the caches do not show yet.
#[doc(alias = "ConsistencyStore")]
pub(super) struct Barrier {
    clock: Clock,
    windows: OnceLock<Windows>,
    queue: Queue<Key>,
    state: Mutex<State>,
    /// Wakes the sweep when a key starts to wait.
    wake_sweep: Notify,
}

#[derive(Default)]
struct State {
    /// Writes and deletions of each key that caches may not show yet.
    awaited: HashMap<Key, Awaited>,
    /// Keys that wait, with the write or deletion that they wait for.
    waiting: HashMap<Key, Behind>,
    /// Keys that wait for a resource version of a kind.
    by_version: HashMap<Kind, BTreeMap<u64, Vec<Key>>>,
    /// Keys that wait for the deletion of an object.
    by_object: HashMap<Object, Vec<Key>>,
}

impl Barrier {
    pub(super) fn new(queue: Queue<Key>, clock: Clock) -> Self {
        let (windows, wake_sweep) = (OnceLock::new(), Notify::new());
        Self { clock, windows, queue, state: Mutex::default(), wake_sweep }
    }

    /// Sets the windows of the controller's caches. Called once, before the first key is planned.
    pub(super) fn set_windows(&self, windows: Windows) {
        // The builder calls this once, so setting the windows cannot fail.
        let _ = self.windows.set(windows);
    }

    /// Records the resource version that the server returned for a write of this key.
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

    /// Records that the server accepted this key's deletion of `target`.
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

    /// Forgets the writes of a key whose object is gone.
    pub(super) fn forget(&self, key: &Key) {
        let mut state = self.lock();
        state.awaited.remove(key);
        state.remove_waiting(key);
    }

    /// Admits a key to a pass if the caches show its last writes.
    ///
    /// # Errors
    /// The kind whose cache the key must wait for. The barrier keeps the key until then.
    pub(super) fn admit(&self, key: &Key) -> Result<(), Kind> {
        let mut state = self.lock();
        let Some(behind) = self.behind(&mut state, key) else {
            state.remove_waiting(key);
            return Ok(());
        };
        let kind = behind.kind().clone();
        state.add_waiting(key, behind);
        drop(state);
        self.wake_sweep.notify_one();
        Err(kind)
    }

    /// Returns the write or deletion that a key waits for, and the cache's resource version (0 before its first
    /// list).
    pub(super) fn waits(&self, key: &Key) -> Option<(Behind, u64)> {
        let behind = self.lock().waiting.get(key).cloned()?;
        let seen = self.windows.get().and_then(|windows| windows.version(behind.kind()));
        Some((behind, seen.unwrap_or(0)))
    }

    /// Counts the waiting keys.
    pub(super) fn n_waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Returns whether a key waits, so that adding it to the queue would have no effect.
    pub(super) fn holds(&self, key: &Key) -> bool {
        self.lock().waiting.contains_key(key)
    }

    /// Handles an event of the cache of `kind` about an object: returns the keys that waited for it to the queue.
    pub(super) fn moved(&self, kind: &Kind, namespace: &str, name: &str, uid: &str) {
        let released = {
            let mut state = self.lock();
            if state.waiting.is_empty() {
                return;
            }
            let version = self.windows.get().and_then(|windows| windows.version(kind));
            let candidates = state.candidates(kind, version, namespace, name, uid);
            self.release(&mut state, candidates)
        };
        self.enqueue(released);
    }

    /// Checks the waiting keys every second. It sleeps while no key waits, and never returns.
    pub(super) async fn sweep(&self) {
        loop {
            self.wake_sweep.notified().await;
            while !self.lock().waiting.is_empty() {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                let released = {
                    let mut state = self.lock();
                    let all = state.waiting.keys().cloned().collect();
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

    /// Removes the candidates that no longer need to wait, and returns them. The others wait for the next write that is
    /// missing.
    fn release(&self, state: &mut State, mut candidates: Vec<Key>) -> Vec<Key> {
        candidates.retain(|key| {
            let behind = self.behind(state, key);
            state.remove_waiting(key);
            if let Some(behind) = behind {
                state.add_waiting(key, behind);
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
    fn add_waiting(&mut self, key: &Key, behind: Behind) {
        if self.waiting.get(key) == Some(&behind) {
            return;
        }
        self.remove_waiting(key);
        match &behind {
            Behind::Version(kind, version) => {
                let versions = self.by_version.entry(kind.clone()).or_default();
                versions.entry(*version).or_default().push(key.clone());
            }
            Behind::Deletion(object) => {
                self.by_object.entry(object.clone()).or_default().push(key.clone());
            }
        }
        self.waiting.insert(key.clone(), behind);
    }

    fn remove_waiting(&mut self, key: &Key) {
        match self.waiting.remove(key) {
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
                let Some(keys) = self.by_object.get_mut(&object) else { return };
                keys.retain(|present| present != key);
                if keys.is_empty() {
                    self.by_object.remove(&object);
                }
            }
            None => {}
        }
    }

    /// Returns the keys whose wait may be over after an event about this object, with the cache of `kind` at `version`.
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
            let mut object = Object { kind, namespace, name, uid: Arc::from(uid) };
            keys.extend(self.by_object.get(&object).into_iter().flatten().cloned());
            // A deletion without a uid waits for any object of the name.
            if !uid.is_empty() {
                object.uid = Arc::from("");
                keys.extend(self.by_object.get(&object).into_iter().flatten().cloned());
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

    /// Barrier over a cache of pods. Tests set the cache's version, and whether the pod with uid `u` exists.
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
        barrier.set_windows(Windows(HashMap::from([(PODS, window)])));
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
    async fn a_key_waits_until_its_deleted_object_is_gone() {
        let f = fixture();
        let keys = ["a", "b", "c"].map(|name| Key::new("ns", name));
        for (key, uid) in keys.iter().zip(["u", "u", ""]) {
            f.barrier.deleted(key, &Target::new(PODS, "ns", "pod", uid));
            assert_eq!(f.barrier.admit(key), Err(PODS));
        }
        *f.alive.lock().unwrap() = false;
        f.barrier.moved(&PODS, "ns", "another", "u");
        assert!(f.queue.is_empty());
        f.barrier.moved(&PODS, "ns", "pod", "u");
        for key in keys {
            assert!(!f.barrier.holds(&key), "{key}");
            assert_eq!(f.queue.next().await, Some(key));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_sweep_releases_keys_after_a_bookmark() {
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
        assert_eq!(start.elapsed(), SWEEP_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_key_does_not_wait() {
        let f = fixture();
        let key = Key::new("ns", "a");
        f.barrier.wrote(&key, &PODS, 12);
        assert_eq!(f.barrier.admit(&key), Err(PODS));
        f.barrier.forget(&key);
        assert!(!f.barrier.holds(&key));
        assert_eq!(f.barrier.admit(&key), Ok(()));
    }
}
