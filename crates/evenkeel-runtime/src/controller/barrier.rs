//! Barrier that reconciles a key only after the caches show the key's own writes. KEP-5647 introduced this rule for some
//! controllers; here it applies to all.
//!
//! A key whose writes the caches do not show yet waits in the barrier. The awaited cache event returns the key to the
//! queue. Some keys get no event: a bookmark advances the cache's version, or the key has waited for
//! [`MAX_WAIT`](super::track::MAX_WAIT). A sweep every second returns these keys.
//!
//! Upstream: `ConsistencyStore`.

use super::{
    track::{Awaited, MissingWrite, Object, View as _, Watch},
    watched::WatchedCaches,
};
use crate::{
    clock::Clock,
    fast_map::FastMap,
    plan::{Key, Target},
    queue::{Priority, Queue},
};
use evenkeel_api::{Kind, Meta};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};
use tokio::sync::Notify;

/// Interval of the sweep, while keys wait.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Read-your-writes barrier of one controller, with the keys whose writes the caches do not show yet.
#[doc(alias = "ConsistencyStore")]
pub(super) struct Barrier {
    clock: Clock,
    caches: RwLock<WatchedCaches>,
    queue: Queue<Key>,
    state: Mutex<State>,
    /// Wakes the sweep when a key starts to wait.
    wake_sweep: Notify,
}

/// Writes that the caches may not show yet, and the keys that wait for them.
#[derive(Default)]
struct State {
    /// Writes and deletions of each key that caches may not show yet.
    awaited: FastMap<Key, Awaited>,
    /// Keys that wait, with the write or deletion that they wait for.
    waiting: FastMap<Key, MissingWrite>,
    /// Keys that wait for a resource version of a watch.
    by_version: FastMap<Watch, BTreeMap<u64, Vec<Key>>>,
    /// Keys that wait for the deletion of an object.
    by_object: FastMap<Object, Vec<Key>>,
}

impl Barrier {
    pub(super) fn new(queue: Queue<Key>, clock: Clock) -> Self {
        let (caches, wake_sweep) = (RwLock::default(), Notify::new());
        Self { clock, caches, queue, state: Mutex::default(), wake_sweep }
    }

    /// Sets the controller's caches. Keys that wait for another cache return to the queue.
    pub(super) fn set_caches(&self, caches: WatchedCaches) {
        let former = std::mem::replace(
            &mut *self.caches.write().unwrap_or_else(PoisonError::into_inner),
            caches,
        );
        drop(former);
        self.release_all();
    }

    fn caches(&self) -> RwLockReadGuard<'_, WatchedCaches> {
        self.caches.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the metadata that the server returned for this key's write of an object.
    pub(super) fn wrote(&self, key: &Key, kind: &Kind, written: &Meta) {
        let version = written.version();
        if version == 0 {
            return;
        }
        let watches = self.caches().watches_of_write(kind, written);
        if watches.is_empty() {
            return;
        }
        let mut state = self.lock();
        let awaited = state.awaited.entry(key.clone()).or_default();
        for watch in watches {
            awaited.wrote(&watch, version, self.clock.instant());
        }
    }

    /// If the target has no uid, returns it with the uid of the object that a cache shows. For a deletion, call this before the
    /// request: afterwards, the caches may show another object of the name.
    pub(super) fn identified(&self, target: &Target) -> Target {
        let mut target = target.clone();
        if target.uid.is_empty()
            && let Some(uid) = self.caches().uid_of(&target.kind, &target.namespace, &target.name)
        {
            target.uid = uid;
        }
        target
    }

    /// Records that the server accepted this key's deletion of `target`. A deletion without a uid is not awaited, because the
    /// caches may show another object of the name, which stays.
    pub(super) fn deleted(&self, key: &Key, target: &Target) {
        if !target.uid.is_empty() && self.watches(&target.kind) {
            let Target { kind, namespace, name, uid } = target.clone();
            let object = Object { kind, namespace, name, uid };
            self.lock()
                .awaited
                .entry(key.clone())
                .or_default()
                .deleted(object, self.clock.instant());
        }
    }

    /// Forgets the writes of a key whose object no longer exists.
    pub(super) fn forget(&self, key: &Key) {
        let mut state = self.lock();
        state.awaited.remove(key);
        state.remove_waiting(key);
    }

    /// Forgets the writes of the keys for which `keep` returns false.
    pub(super) fn retain(&self, keep: &dyn Fn(&Key) -> bool) {
        let mut state = self.lock();
        state.awaited.retain(|key, _| keep(key));
        let waiting: Vec<Key> = state.waiting.keys().filter(|key| !keep(key)).cloned().collect();
        waiting.iter().for_each(|key| state.remove_waiting(key));
    }

    /// Admits a key to a pass (one reconcile) if the caches show its last writes.
    ///
    /// # Errors
    /// Returns the kind whose cache the key must wait for. The barrier keeps the key until then.
    pub(super) fn admit(&self, key: &Key) -> Result<(), Kind> {
        let mut state = self.lock();
        let Some(missing) = self.update_awaited(&mut state, key) else {
            state.remove_waiting(key);
            return Ok(());
        };
        let kind = missing.kind().clone();
        state.add_waiting(key, missing);
        drop(state);
        self.wake_sweep.notify_one();
        Err(kind)
    }

    /// Returns the write or deletion that a key waits for, and for a write the watch's resource version (0 before its
    /// first list).
    pub(super) fn missing_write(&self, key: &Key) -> Option<(MissingWrite, u64)> {
        let missing = self.lock().waiting.get(key).cloned()?;
        let version = match &missing {
            MissingWrite::Version(watch, _) => self.caches().version(watch),
            MissingWrite::Deletion(_) => None,
        };
        Some((missing, version.unwrap_or(0)))
    }

    /// Counts the waiting keys.
    pub(super) fn n_waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Returns whether a key waits. A waiting key need not be added to the queue, because it would not be admitted.
    pub(super) fn is_waiting(&self, key: &Key) -> bool {
        self.lock().waiting.contains_key(key)
    }

    /// Handles an event of the cache of `kind` about an object: returns the keys that waited for it to the queue.
    pub(super) fn on_cache_event(&self, kind: &Kind, namespace: &str, name: &str, uid: &str) {
        let released = {
            let mut state = self.lock();
            if state.waiting.is_empty() {
                return;
            }
            let versions = self.caches().versions_of(kind, namespace);
            let candidates = state.candidates(kind, versions, namespace, name, uid);
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
                self.release_all();
            }
        }
    }

    /// Checks all waiting keys.
    fn release_all(&self) {
        let released = {
            let mut state = self.lock();
            let all = state.waiting.keys().cloned().collect();
            self.release(&mut state, all)
        };
        self.enqueue(released);
    }

    /// Returns whether the caches show all writes of a key.
    pub(super) fn shows_writes(&self, key: &Key) -> bool {
        self.update_awaited(&mut self.lock(), key).is_none()
    }

    /// Returns whether the controller has a cache of this kind.
    fn watches(&self, kind: &Kind) -> bool {
        self.caches().has(kind)
    }

    /// Forgets the key's writes that the caches show by now. Returns the first write that they do not show yet.
    fn update_awaited(&self, state: &mut State, key: &Key) -> Option<MissingWrite> {
        let awaited = state.awaited.get_mut(key)?;
        let missing = awaited.first_missing(&*self.caches(), self.clock.instant());
        if awaited.is_empty() {
            state.awaited.remove(key);
        }
        missing
    }

    /// Removes the candidates that no longer need to wait, and returns them. The others wait for the next write that is
    /// missing.
    fn release(&self, state: &mut State, mut candidates: Vec<Key>) -> Vec<Key> {
        candidates.retain(|key| {
            let missing = self.update_awaited(state, key);
            state.remove_waiting(key);
            if let Some(missing) = missing {
                state.add_waiting(key, missing);
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
    fn add_waiting(&mut self, key: &Key, missing: MissingWrite) {
        if self.waiting.get(key) == Some(&missing) {
            return;
        }
        self.remove_waiting(key);
        match &missing {
            MissingWrite::Version(watch, version) => {
                let versions = self.by_version.entry(watch.clone()).or_default();
                versions.entry(*version).or_default().push(key.clone());
            }
            MissingWrite::Deletion(object) => {
                self.by_object.entry(object.clone()).or_default().push(key.clone());
            }
        }
        self.waiting.insert(key.clone(), missing);
    }

    fn remove_waiting(&mut self, key: &Key) {
        match self.waiting.remove(key) {
            Some(MissingWrite::Version(watch, version)) => {
                let Some(versions) = self.by_version.get_mut(&watch) else { return };
                if let Some(keys) = versions.get_mut(&version) {
                    keys.retain(|waiting| waiting != key);
                    if keys.is_empty() {
                        versions.remove(&version);
                    }
                }
            }
            Some(MissingWrite::Deletion(object)) => {
                let Some(keys) = self.by_object.get_mut(&object) else { return };
                keys.retain(|waiting| waiting != key);
                if keys.is_empty() {
                    self.by_object.remove(&object);
                }
            }
            None => {}
        }
    }

    /// Returns the keys whose wait may be over after an event about this object, with its watches at their versions.
    fn candidates(
        &self,
        kind: &Kind,
        watches: Vec<(Watch, u64)>,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Vec<Key> {
        let mut keys = Vec::new();
        for (watch, version) in watches {
            let versions = self.by_version.get(&watch).into_iter();
            let reached = versions.flat_map(|versions| versions.range(..=version));
            keys.extend(reached.flat_map(|(_, keys)| keys.iter().cloned()));
        }
        if !self.by_object.is_empty() {
            let (kind, namespace, name) = (kind.clone(), Arc::from(namespace), Arc::from(name));
            let object = Object { kind, namespace, name, uid: Arc::from(uid) };
            keys.extend(self.by_object.get(&object).into_iter().flatten().cloned());
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::watched::{CachedObject, WatchedCache},
        *,
    };
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
        let (cache_version, is_alive) = (Arc::clone(&version), Arc::clone(&alive));
        let cache = WatchedCache {
            id: 1,
            shows: Box::new(|_| true),
            namespaces: Vec::new(),
            version: Box::new(move |_| Some(cache_version.load(Ordering::SeqCst))),
            find: Box::new(move |_, _| {
                let object = || CachedObject { uid: Arc::from("u"), is_being_deleted: false };
                is_alive.lock().unwrap().then(object)
            }),
        };
        barrier.set_caches(WatchedCaches::from_iter([(PODS, cache)]));
        Fixture { barrier, queue, version, alive }
    }

    /// Returns the metadata of a pod in the namespace `ns`.
    fn pod_at(version: u64) -> Meta {
        let resource_version = version.to_string().into();
        Meta { namespace: "ns".into(), name: "pod".into(), resource_version, ..Meta::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_awaited_by_each_cache_of_its_kind_that_will_show_it() {
        let f = fixture();
        let versions: [Arc<AtomicU64>; 3] = std::array::from_fn(|_| Arc::new(AtomicU64::new(10)));
        let caches = versions.iter().enumerate().map(|(id, version)| {
            let version = Arc::clone(version);
            let cache = WatchedCache {
                id,
                shows: Box::new(move |_| id != 2),
                namespaces: Vec::new(),
                version: Box::new(move |_| Some(version.load(Ordering::SeqCst))),
                find: Box::new(move |_, _| None),
            };
            (PODS, cache)
        });
        f.barrier.set_caches(caches.collect());
        let key = Key::new("ns", "a");
        f.barrier.wrote(&key, &PODS, &pod_at(12));
        for (reached, admitted) in [(None, false), (Some(0), false), (Some(1), true)] {
            if let Some(cache) = reached {
                let cache: usize = cache;
                versions[cache].store(12, Ordering::SeqCst);
            }
            f.barrier.on_cache_event(&PODS, "ns", "pod", "");
            assert_eq!(f.barrier.admit(&key).is_ok(), admitted, "{reached:?}");
        }
        // A cache without a list is awaited only after its first list.
        versions[0].store(0, Ordering::SeqCst);
        f.barrier.wrote(&key, &PODS, &pod_at(12));
        assert_eq!(f.barrier.admit(&key), Ok(()));
        versions[0].store(11, Ordering::SeqCst);
        assert_eq!(f.barrier.admit(&key), Err(PODS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_without_a_uid_awaits_the_object_that_was_cached_before() {
        let f = fixture();
        let (key, target) = (Key::new("ns", "a"), Target::new(PODS, "ns", "pod", ""));
        let identified = f.barrier.identified(&target);
        assert_eq!(&*identified.uid, "u");
        *f.alive.lock().unwrap() = false;
        let unknown = f.barrier.identified(&target);
        *f.alive.lock().unwrap() = true;
        f.barrier.deleted(&key, &unknown);
        assert_eq!(f.barrier.admit(&key), Ok(()), "what is in the cache now may be another pod");
        f.barrier.deleted(&key, &identified);
        assert_eq!(f.barrier.admit(&key), Err(PODS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_its_version_and_is_released_by_the_event() {
        let f = fixture();
        let (key, other) = (Key::new("ns", "a"), Key::new("ns", "b"));
        f.barrier.wrote(&key, &PODS, &pod_at(12));
        assert_eq!(f.barrier.admit(&key), Err(PODS));
        assert_eq!(f.barrier.admit(&other), Ok(()));
        assert!(f.barrier.is_waiting(&key));
        f.version.store(11, Ordering::SeqCst);
        f.barrier.on_cache_event(&PODS, "ns", "x", "");
        assert!(f.queue.is_empty());
        f.version.store(12, Ordering::SeqCst);
        f.barrier.on_cache_event(&PODS, "ns", "x", "");
        assert_eq!(f.queue.next().await, Some(key.clone()));
        assert_eq!(f.barrier.admit(&key), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_until_its_deleted_object_is_gone() {
        let f = fixture();
        let keys = ["a", "b", "c"].map(|name| Key::new("ns", name));
        for (key, uid) in keys.iter().zip(["u", "u", ""]) {
            let target = f.barrier.identified(&Target::new(PODS, "ns", "pod", uid));
            f.barrier.deleted(key, &target);
            assert_eq!(f.barrier.admit(key), Err(PODS));
        }
        *f.alive.lock().unwrap() = false;
        f.barrier.on_cache_event(&PODS, "ns", "another", "u");
        assert!(f.queue.is_empty());
        f.barrier.on_cache_event(&PODS, "ns", "pod", "u");
        for key in keys {
            assert!(!f.barrier.is_waiting(&key), "{key}");
            assert_eq!(f.queue.next().await, Some(key));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_sweep_releases_keys_after_a_bookmark() {
        let f = fixture();
        let key = Key::new("ns", "a");
        f.barrier.wrote(&key, &PODS, &pod_at(12));
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
    async fn a_key_does_not_wait_for_a_cache_that_is_removed() {
        let f = fixture();
        let (written, deleted) = (Key::new("ns", "a"), Key::new("ns", "b"));
        f.barrier.wrote(&written, &PODS, &pod_at(12));
        f.barrier.deleted(&deleted, &Target::new(PODS, "ns", "pod", "u"));
        for key in [&written, &deleted] {
            assert_eq!(f.barrier.admit(key), Err(PODS));
        }
        f.barrier.set_caches(WatchedCaches::default());
        for key in [written, deleted] {
            assert_eq!(f.queue.next().await, Some(key.clone()));
            assert_eq!(f.barrier.admit(&key), Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_key_does_not_wait() {
        let f = fixture();
        let key = Key::new("ns", "a");
        f.barrier.wrote(&key, &PODS, &pod_at(12));
        assert_eq!(f.barrier.admit(&key), Err(PODS));
        f.barrier.forget(&key);
        assert!(!f.barrier.is_waiting(&key));
        assert_eq!(f.barrier.admit(&key), Ok(()));
    }
}
