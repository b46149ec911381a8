//! Pods that wait for a node, as the scheduler's cache has them.

use super::{Link, ago::Ago, shorten};
use crate::route::{ObjectPath, scheduling_href};
use askama::Template;
use evenkeel_api::{View as _, condition, time::Timestamp, views::Pod};
use std::{cmp::Reverse, sync::Arc};

/// Maximum number of listed pods.
const MAX_PODS: usize = 500;
/// Maximum length of a reason.
const MAX_REASON: usize = 240;

/// A pod without a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingRow {
    /// Namespace and name, with the pod's page.
    pub(crate) pod: Link,
    /// Page of the pod's scheduling: nodes and plugins.
    pub(crate) scheduling: String,
    /// Scheduler that is responsible for the pod.
    pub(crate) scheduler: String,
    /// Value of the pod's PriorityClass. 0 without one.
    pub(crate) priority: i32,
    /// Age since the creation.
    pub(crate) created: Option<Ago>,
    /// Message of the last attempt. Empty before the first one.
    pub(crate) why: String,
}

/// Page of the pods that wait for a node.
#[derive(Debug, Clone, Template)]
#[template(path = "pending.html")]
pub(crate) struct PendingPage {
    /// Namespace of the pods. Empty for all.
    pub(crate) namespace: String,
    /// Namespaces to choose from. Empty if the user may not list them.
    pub(crate) namespaces: Vec<String>,
    /// Number of pods by queue of the scheduler. Empty if the user may not see metrics.
    pub(crate) queues: Vec<(String, u64)>,
    /// Reason why the process schedules no pods. Empty if it does.
    pub(crate) standby: String,
    /// Whether the process has read the pods.
    pub(crate) is_read: bool,
    /// Pods, those of the highest priority first.
    pub(crate) rows: Vec<PendingRow>,
    /// Number of pods that are not listed.
    pub(crate) more: usize,
}

/// Returns the rows of the pods that wait for a node, and the number of those that are left out. `namespace` is empty for all.
pub(crate) fn pending(
    now: Timestamp,
    pods: Vec<Arc<Pod>>,
    namespace: &str,
) -> (Vec<PendingRow>, usize) {
    let mut pods = pods;
    pods.retain(|pod| {
        let has_finished = matches!(&*pod.status.phase, "Succeeded" | "Failed");
        let is_chosen = namespace.is_empty() || *pod.meta.namespace == *namespace;
        is_chosen && pod.spec.node_name.is_empty() && !has_finished && !pod.meta.deleting()
    });
    pods.sort_by_key(|pod| {
        let name = (pod.meta.namespace.clone(), pod.meta.name.clone());
        (Reverse(pod.spec.priority.unwrap_or_default()), pod.meta.creation, name)
    });
    let more = pods.len().saturating_sub(MAX_PODS);
    (pods.iter().take(MAX_PODS).map(|pod| row(now, pod)).collect(), more)
}

fn row(now: Timestamp, pod: &Pod) -> PendingRow {
    let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
    let href = ObjectPath::of(&Pod::kind(), namespace, name).href();
    let attempt = condition::find(&pod.status.conditions, "PodScheduled");
    PendingRow {
        pod: Link::new(format!("{namespace}/{name}"), href),
        scheduling: scheduling_href(namespace, name),
        scheduler: pod.spec.scheduler_name.to_string(),
        priority: pod.spec.priority.unwrap_or_default(),
        created: pod.meta.creation.map(|created| Ago::new(now, created)),
        why: attempt.map(|attempt| shorten(&attempt.message, MAX_REASON)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::decoded;
    use serde_json::{Value, json};

    #[test]
    fn pods_without_a_node_are_listed_by_priority() {
        let pod = |name: &str, spec: Value, status: Value| {
            let metadata = json!({"name": name, "namespace": if name == "c" { "b" } else { "a" }});
            Arc::new(decoded::<Pod>(&json!({"metadata": metadata, "spec": spec, "status": status})))
        };
        let message = "0/1 nodes are available: <script>";
        let condition = json!({"type": "PodScheduled", "status": "False", "message": message});
        let pods = vec![
            pod("low", json!({"schedulerName": "s"}), json!({"conditions": [condition]})),
            pod("high", json!({"priority": 9}), json!({})),
            pod("placed", json!({"nodeName": "n"}), json!({})),
            pod("ended", json!({}), json!({"phase": "Failed"})),
            pod("c", json!({}), json!({})),
        ];
        let now = Timestamp::from_second(0).expect("a time");
        let names = |namespace: &str| {
            let (rows, more) = pending(now, pods.clone(), namespace);
            assert_eq!(more, 0);
            rows.into_iter().map(|row| row.pod.text).collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["a/high", "a/low", "b/c"]);
        assert_eq!(names("b"), ["b/c"]);
        let (rows, more) = pending(now, vec![Arc::clone(&pods[0]); MAX_PODS + 2], "");
        assert_eq!((rows.len(), more), (MAX_PODS, 2));
        let (rows, more) = pending(now, pods.clone(), "");
        let page = PendingPage {
            namespace: String::new(),
            namespaces: Vec::new(),
            queues: vec![("unschedulable".to_owned(), 3)],
            standby: String::new(),
            is_read: true,
            rows,
            more,
        };
        let html = page.render().expect("rendered");
        assert!(html.contains("href=\"/pod/a/low/scheduling\""), "{html}");
        assert!(html.contains("are available: &#60;script&#62;") && !html.contains("<script"));
        assert!(html.contains("unschedulable") && !html.contains("standby"), "{html}");
        let page = PendingPage { rows: Vec::new(), is_read: false, ..page };
        let html = page.render().expect("rendered");
        assert!(html.contains("has not read the pods") && !html.contains("No pod waits"), "{html}");
    }
}
