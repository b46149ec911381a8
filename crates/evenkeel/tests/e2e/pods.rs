//! Pods at every change, in the order of the server's changes.

use crate::cluster::{Namespace, WAIT_TIMEOUT, items, name};
use futures::{StreamExt, stream::LocalBoxStream};
use kube::core::WatchEvent;
use serde_json::Value;
use std::collections::BTreeMap;

/// The pods of a namespace, kept current by a watch.
pub(crate) struct Pods {
    now: BTreeMap<String, Value>,
    events: LocalBoxStream<'static, Result<WatchEvent<Value>, kube::Error>>,
}

impl Pods {
    /// Lists the pods, and watches from there.
    pub(crate) async fn watch(namespace: &Namespace<'_>) -> Self {
        let list = namespace.get("pods").await;
        let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
        let path = namespace.path(&format!("pods?watch=true&resourceVersion={version}"));
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let events = namespace.cluster().kube().request_events::<Value>(request).await;
        let now = items(&list).iter().map(|pod| (name(pod).to_owned(), pod.clone())).collect();
        Self { now, events: events.expect("a watch").boxed_local() }
    }

    /// Calls `look` with the current pods and after each change, until it returns true.
    pub(crate) async fn until(&mut self, what: &str, mut look: impl FnMut(&View) -> bool) {
        let watching = async {
            while !look(&View(&self.now)) {
                let event = self.events.next().await.expect("the watch goes on").expect("an event");
                match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        self.now.insert(name(&pod).to_owned(), pod);
                    }
                    WatchEvent::Deleted(pod) => {
                        self.now.remove(name(&pod));
                    }
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(status) => panic!("watch of pods: {status:?}"),
                }
            }
        };
        if tokio::time::timeout(WAIT_TIMEOUT, watching).await.is_err() {
            panic!("{what}: not within {WAIT_TIMEOUT:?}; the pods are {:#?}", self.now);
        }
    }
}

/// Pods at one moment.
pub(crate) struct View<'a>(&'a BTreeMap<String, Value>);

impl View<'_> {
    /// Returns the number of all pods.
    pub(crate) fn all(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of pods that have neither ended nor are being deleted.
    pub(crate) fn active(&self) -> usize {
        self.count(is_active)
    }

    /// Returns the number of active pods that are ready.
    pub(crate) fn ready(&self) -> usize {
        self.count(|pod| is_active(pod) && is_ready(pod))
    }

    /// Returns the number of active pods with this image.
    pub(crate) fn of_image(&self, image: &str) -> usize {
        self.count(|pod| is_active(pod) && self::image(pod) == image)
    }

    /// Returns the number of pods with this image that have not ended, including those that are being deleted.
    pub(crate) fn running_image(&self, image: &str) -> usize {
        self.count(|pod| !has_ended(pod) && self::image(pod) == image)
    }

    fn count(&self, counts: impl Fn(&Value) -> bool) -> usize {
        self.0.values().filter(|pod| counts(pod)).count()
    }
}

/// Returns whether the pod has neither ended nor a deletion timestamp.
pub(crate) fn is_active(pod: &Value) -> bool {
    !has_ended(pod) && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Returns whether none of the pod's containers runs or will run again.
fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Returns whether the pod's condition `Ready` has the status True.
pub(crate) fn is_ready(pod: &Value) -> bool {
    crate::cluster::condition(pod, "Ready")["status"] == "True"
}

/// Returns the image of the pod's first container.
pub(crate) fn image(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}
