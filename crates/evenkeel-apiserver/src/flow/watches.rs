//! Counts watches by their scope, to estimate how many watchers receive a write.
//!
//! Upstream: `watchTracker`.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_api::selector::FieldSelector;

use crate::request::RequestInfo;

/// Number of watches by the hash that [`scope_key`] returns. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchTracker(Arc<Mutex<HashMap<u64, u64>>>);

/// Registration of a watch in a tracker. The drop removes it.
#[derive(Debug)]
pub(crate) struct CountedWatch {
    tracker: WatchTracker,
    key: u64,
}

impl Drop for CountedWatch {
    fn drop(&mut self) {
        let mut counts = self.tracker.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

/// Returns the key of watches with the same scope. A hash avoids allocations in lookups; a collision only makes the
/// estimate slightly too high.
fn scope_key(info: &RequestInfo<'_>, namespace: &str, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (info.group, info.resource, namespace, name).hash(&mut hasher);
    hasher.finish()
}

impl WatchTracker {
    /// Counts a watch until the result drops. Returns `None` for a watch of one node's pods, which receives few writes.
    ///
    /// Upstream: `RegisterWatch`.
    pub(crate) fn register(&self, info: &RequestInfo<'_>) -> Option<CountedWatch> {
        if info.resource == "pods" && !info.field_selector.is_empty() {
            let selector = FieldSelector::parse(info.field_selector).ok();
            let node = selector.as_ref().and_then(|selector| selector.exact("spec.nodeName"));
            if node.is_some_and(|node| !node.is_empty()) {
                return None;
            }
        }
        let key = scope_key(info, info.namespace, info.name);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
        Some(CountedWatch { tracker: self.clone(), key })
    }

    /// Returns the number of watches that receive a write: those on all objects, on the namespace, and on the object.
    ///
    /// Upstream: `GetInterestedWatchCount`.
    pub(crate) fn interested_watch_count(&self, info: &RequestInfo<'_>) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.is_empty() {
            return 0;
        }
        let count = |namespace: &str, name: &str| {
            counts.get(&scope_key(info, namespace, name)).copied().unwrap_or_default()
        };
        let mut interested = count("", "");
        if !info.namespace.is_empty() {
            interested += count(info.namespace, "");
        }
        if !info.name.is_empty() {
            interested += count(info.namespace, info.name);
        }
        interested
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::Query;

    #[test]
    fn a_write_counts_the_watches_whose_scope_includes_it() {
        let tracker = WatchTracker::default();
        let watch = |path: &str, query: &str| {
            let query = Query::parse(Some(query));
            tracker.register(&RequestInfo::of(&Method::GET, path, &query))
        };
        let watches = [
            watch("/api/v1/pods", "watch=1"),
            watch("/api/v1/pods", "watch=1&fieldSelector=spec.nodeName%3D"),
            watch("/api/v1/namespaces/a/pods", "watch=1"),
            watch("/api/v1/namespaces/a/pods", "watch=1&fieldSelector=metadata.name%3Dp"),
            watch("/api/v1/namespaces/b/pods", "watch=1"),
            watch("/api/v1/configmaps", "watch=1"),
        ];
        assert!(watches.iter().all(Option::is_some));
        assert!(watch("/api/v1/pods", "watch=1&fieldSelector=spec.nodeName%3Dn").is_none());
        let interested = |method: Method, path: &str| {
            tracker.interested_watch_count(&RequestInfo::of(&method, path, &Query::default()))
        };
        assert_eq!(interested(Method::POST, "/api/v1/namespaces/a/pods"), 3);
        assert_eq!(interested(Method::PUT, "/api/v1/namespaces/a/pods/p"), 4);
        assert_eq!(interested(Method::PUT, "/api/v1/namespaces/c/pods/p"), 2);
        assert_eq!(interested(Method::PUT, "/api/v1/nodes/n"), 0);
        drop(watches);
        assert_eq!(interested(Method::PUT, "/api/v1/namespaces/a/pods/p"), 0);
        assert!(tracker.0.lock().expect("a lock").is_empty());
    }
}
