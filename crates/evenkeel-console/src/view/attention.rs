//! Objects of a cluster that need attention: nodes, workloads and pods that stay outside of their desired state.

use super::{Chip, Link, podstatus::PodStatus, shorten};
use crate::route::ObjectPath;
use evenkeel_api::{
    Meta, View, condition,
    time::Timestamp,
    views::{Deployment, Job, Node, Pod, ReplicaSet, StatefulSet},
};
use evenkeel_nodes::{ANNOTATIONS, FaultEnd, NodeFaults, PREFIX};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Maximum number of listed objects.
const MAX_ITEMS: usize = 10;
/// Time for which an object may be incomplete without needing attention, in seconds.
const INCOMPLETE_TIMEOUT: i64 = 60;
/// Maximum length of a reason.
const MAX_REASON: usize = 160;

/// Objects of a cluster, as caches have them.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    /// Deployments that the reader may list.
    pub(crate) deployments: Vec<Arc<Deployment>>,
    /// ReplicaSets that the reader may list.
    pub(crate) replicasets: Vec<Arc<ReplicaSet>>,
    /// StatefulSets that the reader may list.
    pub(crate) statefulsets: Vec<Arc<StatefulSet>>,
    /// Jobs that the reader may list.
    pub(crate) jobs: Vec<Arc<Job>>,
}

/// An object that needs attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// Kind and name, with the object's page.
    pub(crate) link: Link,
    /// State in a word.
    pub(crate) state: Chip,
    /// Reason why the object is not in its desired state.
    pub(crate) reason: String,
}

/// Returns the objects that need attention, the worst first, and the number of further ones.
pub(crate) fn attention(
    node_faults: &NodeFaults,
    now: Timestamp,
    nodes: &[Arc<Node>],
    workloads: &Workloads,
    pods: &[Arc<Pod>],
) -> (Vec<Item>, usize) {
    let mut items: Vec<Item> =
        nodes.iter().filter_map(|node| node_item(node_faults, now, node)).collect();
    items.extend(workloads.deployments.iter().filter_map(|object| deployment_item(now, object)));
    let changes = Changes::of(pods);
    let statefulsets = workloads.statefulsets.iter();
    items.extend(statefulsets.filter_map(|object| statefulset_item(now, object, &changes)));
    items.extend(workloads.jobs.iter().filter_map(|object| job_item(now, object, &changes)));
    items.extend(pod_items(now, pods, &satisfied(workloads)));
    items.sort_by_key(|item| super::podlist::rank(item.state.tone));
    let more = items.len().saturating_sub(MAX_ITEMS);
    items.truncate(MAX_ITEMS);
    (items, more)
}

/// Last changes of pods by the uid of their controller.
struct Changes<'a>(HashMap<&'a str, Timestamp>);

impl<'a> Changes<'a> {
    /// Records the times at which a pod was created, became ready or unready, or was deleted.
    fn of(pods: &'a [Arc<Pod>]) -> Self {
        let mut last = HashMap::new();
        for pod in pods {
            let Some(owner) = pod.meta.controller() else { continue };
            let ready = condition::find(&pod.status.conditions, "Ready");
            let times = [
                pod.meta.creation,
                pod.meta.deletion,
                ready.and_then(|ready| ready.last_transition_time),
            ];
            if let Some(time) = times.into_iter().flatten().max() {
                let known = last.entry(&*owner.uid).or_insert(time);
                *known = time.max(*known);
            }
        }
        Self(last)
    }

    fn last(&self, owner: &Meta) -> Option<Timestamp> {
        self.0.get(&*owner.uid).copied()
    }
}

/// Returns the uids of the controllers that are complete or have their replicas. Their pods that ended need no attention.
fn satisfied(workloads: &Workloads) -> HashSet<&str> {
    let has = |ready: i32, replicas: Option<i32>| ready >= replicas.unwrap_or(1);
    let replicasets = workloads.replicasets.iter().filter_map(|set| {
        has(set.status.ready_replicas, set.spec.replicas).then_some(&*set.meta.uid)
    });
    let statefulsets = workloads.statefulsets.iter().filter_map(|set| {
        has(set.status.ready_replicas, set.spec.replicas).then_some(&*set.meta.uid)
    });
    let jobs = workloads.jobs.iter().filter_map(|job| {
        let mut conditions = job.status.conditions.iter();
        let is_complete =
            conditions.any(|c| &*c.type_ == "Complete" && &*c.status == condition::TRUE);
        is_complete.then_some(&*job.meta.uid)
    });
    replicasets.chain(statefulsets).chain(jobs).collect()
}

/// Returns the faults of a node that are in effect, as sentences.
pub(crate) fn faults(node_faults: &NodeFaults, now: Timestamp, node: &Node) -> Vec<String> {
    let of_nodes = ANNOTATIONS.iter().filter(|annotation| annotation.kind == "Node");
    of_nodes
        .filter_map(|annotation| {
            let name = format!("{PREFIX}{}", annotation.name);
            let until = match node_faults.fault(node, &name, now)? {
                FaultEnd::Open => String::new(),
                FaultEnd::At(end) => format!(" until {}", evenkeel_api::time::seconds(end)),
            };
            Some(format!("{}{until}", annotation.name))
        })
        .collect()
}

fn node_item(node_faults: &NodeFaults, now: Timestamp, node: &Node) -> Option<Item> {
    let faults = faults(node_faults, now, node);
    let ready = condition::find(&node.status.conditions, "Ready");
    let is_ready = ready.is_some_and(|ready| &*ready.status == condition::TRUE);
    let reason = match faults.is_empty() {
        true => ready.map_or("its kubelet has not reported", |ready| &*ready.message).to_owned(),
        false => format!("fault: {}", faults.join(", ")),
    };
    match (is_ready, faults.is_empty()) {
        (true, true) => None,
        (true, false) => Some(item::<Node>(&node.meta, Chip::new("Fault", "warn"), &reason)),
        (false, _) => Some(item::<Node>(&node.meta, Chip::new("NotReady", "bad"), &reason)),
    }
}

fn deployment_item(now: Timestamp, object: &Deployment) -> Option<Item> {
    let (status, wanted) = (&object.status, object.spec.replicas.unwrap_or(1));
    let is_complete = status.observed_generation >= object.meta.generation
        && status.updated_replicas >= wanted
        && status.available_replicas >= wanted
        && status.replicas == status.updated_replicas;
    let times = status.conditions.iter().flat_map(|c| [c.last_update_time, c.last_transition_time]);
    if is_complete || object.spec.paused || !is_late(now, &object.meta, times) {
        return None;
    }
    let of = |type_| condition::find(&status.conditions, type_);
    let failed = of("ReplicaFailure")
        .filter(|failure| &*failure.status == condition::TRUE)
        .or_else(|| of("Progressing").filter(|progress| &*progress.status == condition::FALSE));
    let counts = match status.available_replicas < wanted {
        true => format!("{} of {wanted} available", status.available_replicas),
        false => format!("{} of {wanted} updated", status.updated_replicas),
    };
    let reason = failed.map_or(counts.clone(), |failed| format!("{counts}: {}", failed.message));
    let tone = if failed.is_some() || status.available_replicas == 0 { "bad" } else { "warn" };
    Some(item::<Deployment>(&object.meta, Chip::new("Incomplete", tone), &reason))
}

fn statefulset_item(now: Timestamp, object: &StatefulSet, changes: &Changes<'_>) -> Option<Item> {
    let (status, wanted) = (&object.status, object.spec.replicas.unwrap_or(1));
    let is_complete =
        status.observed_generation >= object.meta.generation && status.ready_replicas >= wanted;
    let times = status.conditions.iter().map(|condition| condition.last_transition_time);
    // Its controller sets no conditions.
    let times = times.chain([changes.last(&object.meta)]);
    if is_complete || !is_late(now, &object.meta, times) {
        return None;
    }
    let tone = if status.ready_replicas == 0 { "bad" } else { "warn" };
    let reason = format!("{} of {wanted} ready", status.ready_replicas);
    Some(item::<StatefulSet>(&object.meta, Chip::new("Incomplete", tone), &reason))
}

/// Returns a Job that has failed, or that has no running pod. A Job with a running pod needs no attention, whatever its
/// duration.
fn job_item(now: Timestamp, object: &Job, changes: &Changes<'_>) -> Option<Item> {
    let status = &object.status;
    let is = |type_: &str| {
        let mut conditions = status.conditions.iter();
        conditions.find(|c| &*c.type_ == type_ && &*c.status == condition::TRUE)
    };
    if let Some(failed) = is("Failed") {
        let reason = format!("{}: {}", failed.reason, failed.message);
        return Some(item::<Job>(&object.meta, Chip::new("Failed", "bad"), &reason));
    }
    // After the end of a pod, none is ready until the next one starts.
    let times = [status.start_time, changes.last(&object.meta)];
    let is_late = is_late(now, &object.meta, times.into_iter());
    let runs = status.ready.unwrap_or_default() > 0;
    if is("Complete").is_some() || object.spec.suspend || runs || !is_late {
        return None;
    }
    let reason = format!("no pod is ready; {} active, {} failed", status.active, status.failed);
    Some(item::<Job>(&object.meta, Chip::new("Incomplete", "warn"), &reason))
}

/// Returns pods that are stuck, except those that ended and whose controller is in `satisfied`. Of pods with the same owner and
/// the same status, returns the first one.
fn pod_items(now: Timestamp, pods: &[Arc<Pod>], satisfied: &HashSet<&str>) -> Vec<Item> {
    let is_replaced = |pod: &Pod| {
        matches!(&*pod.status.phase, "Failed" | "Succeeded")
            && pod.meta.controller().is_some_and(|owner| satisfied.contains(&*owner.uid))
    };
    let mut stuck: Vec<(PodStatus, &Pod)> = pods
        .iter()
        .map(|pod| (PodStatus::of(pod), &**pod))
        .filter(|(status, pod)| is_stuck(now, status, pod) && !is_replaced(pod))
        .collect();
    stuck.sort_by_key(|(_, pod)| (pod.meta.namespace.clone(), pod.meta.name.clone()));
    let mut alike: HashMap<(String, String), usize> = HashMap::new();
    let mut first: Vec<(PodStatus, &Pod, (String, String))> = Vec::new();
    for (status, pod) in stuck {
        let owner = pod.meta.controller().map_or(&pod.meta.uid, |owner| &owner.uid);
        let key = (owner.to_string(), status.word.clone());
        let count = alike.entry(key.clone()).or_default();
        *count += 1;
        if *count == 1 {
            first.push((status, pod, key));
        }
    }
    let item = |(status, pod, key): (PodStatus, &Pod, (String, String))| {
        let mut reason = pod_reason(&status, pod);
        let others = alike.get(&key).copied().unwrap_or(1) - 1;
        if others > 0 {
            reason = format!("{others} more alike; {reason}");
        }
        item::<Pod>(&pod.meta, status.chip(), &reason)
    };
    first.into_iter().map(item).collect()
}

fn is_stuck(now: Timestamp, status: &PodStatus, pod: &Pod) -> bool {
    match status.tone() {
        "bad" => true,
        // The deletion timestamp is the end of the grace period.
        "warn" if pod.meta.deleting() => is_old(now, pod.meta.deletion),
        "warn" => {
            let times = pod.status.conditions.iter().map(|c| c.last_transition_time);
            is_late(now, &pod.meta, times)
        }
        _ => false,
    }
}

/// Returns why a pod is stuck: the message of the scheduler or of a container, or else the number of ready containers.
fn pod_reason(status: &PodStatus, pod: &Pod) -> String {
    let conditions = &pod.status.conditions;
    let scheduled = condition::find(conditions, "PodScheduled");
    if let Some(scheduled) =
        scheduled.filter(|c| &*c.status == condition::FALSE && !c.message.is_empty())
    {
        return scheduled.message.to_string();
    }
    if !pod.status.message.is_empty() {
        return pod.status.message.to_string();
    }
    let statuses = pod.status.init_container_statuses.iter().chain(&*pod.status.container_statuses);
    let waiting = statuses
        .filter_map(|container| Some((container, container.state.waiting.as_ref()?)))
        .find(|(_, waiting)| !waiting.message.is_empty());
    match waiting {
        Some((container, waiting)) => format!("container {}: {}", container.name, waiting.message),
        None if status.restarts > 0 => {
            format!(
                "{} of {} containers ready, {} restarts",
                status.ready, status.total, status.restarts
            )
        }
        None => format!("{} of {} containers ready", status.ready, status.total),
    }
}

/// Returns whether an object has been unchanged for longer than [`INCOMPLETE_TIMEOUT`] since the last of these times and its
/// creation.
fn is_late(now: Timestamp, meta: &Meta, times: impl Iterator<Item = Option<Timestamp>>) -> bool {
    is_old(now, times.chain([meta.creation]).flatten().max())
}

fn is_old(now: Timestamp, time: Option<Timestamp>) -> bool {
    time.is_none_or(|time| now.as_second() - time.as_second() > INCOMPLETE_TIMEOUT)
}

fn item<V: View>(meta: &Meta, state: Chip, reason: &str) -> Item {
    let kind = V::kind();
    let slash = if meta.namespace.is_empty() { "" } else { "/" };
    let text = format!("{} {}{slash}{}", kind.kind, meta.namespace, meta.name);
    let href = ObjectPath::of(&kind, &meta.namespace, &meta.name).href();
    Item { link: Link::new(text, href), state, reason: shorten(reason, MAX_REASON) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::decoded;
    use serde_json::{Value, json};

    const OLD: &str = "2027-01-15T07:00:00Z";
    const NEW: &str = "2027-01-15T07:59:30Z";

    fn now() -> Timestamp {
        "2027-01-15T08:00:00Z".parse().expect("a time")
    }

    fn arc<V: View>(object: &Value) -> Vec<Arc<V>> {
        vec![Arc::new(decoded(object))]
    }

    fn shown(items: &[Item]) -> Vec<(&str, &str, &str)> {
        items.iter().map(|item| (&*item.state.text, item.state.tone, &*item.reason)).collect()
    }

    #[test]
    fn nodes_need_attention_when_not_ready_or_with_a_fault() {
        let node = |ready: &str, silent: &str| {
            arc::<Node>(&json!({
                "metadata": {"name": "n", "annotations": {"sim.evenkeel.dev/silent": silent}},
                "status": {"conditions": [{"type": "Ready", "status": ready, "message": "no heartbeat"}]},
            }))
        };
        for (ready, silent, want) in [
            ("True", "", None),
            ("True", "until 2027-01-15T07:59:59Z", None),
            ("Unknown", "", Some(("NotReady", "bad", "no heartbeat"))),
            ("True", "true", Some(("Fault", "warn", "fault: silent"))),
            (
                "False",
                "until 2027-01-15T08:05:00Z",
                Some(("NotReady", "bad", "fault: silent until 2027-01-15T08:05:00Z")),
            ),
        ] {
            let (items, _) = attention(
                &NodeFaults::default(),
                now(),
                &node(ready, silent),
                &Workloads::default(),
                &[],
            );
            assert_eq!(shown(&items), want.into_iter().collect::<Vec<_>>(), "{ready} {silent}");
        }
    }

    #[test]
    fn workloads_need_attention_when_they_stay_incomplete() {
        let deployment = |available: i32, at: &str| {
            let condition = json!({"type": "Available", "status": "False", "lastTransitionTime": at, "lastUpdateTime": at});
            arc::<Deployment>(&json!({
                "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": OLD},
                "spec": {"replicas": 3},
                "status": {"replicas": 3, "updatedReplicas": 3, "availableReplicas": available, "conditions": [condition]},
            }))
        };
        for (available, at, want) in [
            (3, OLD, None),
            (2, NEW, None),
            (2, OLD, Some(("Incomplete", "warn", "2 of 3 available"))),
            (0, OLD, Some(("Incomplete", "bad", "0 of 3 available"))),
        ] {
            let workloads =
                Workloads { deployments: deployment(available, at), ..Workloads::default() };
            let (items, _) = attention(&NodeFaults::default(), now(), &[], &workloads, &[]);
            assert_eq!(shown(&items), want.into_iter().collect::<Vec<_>>(), "{available} {at}");
        }
        let set = |ready: i32, created: &str| {
            arc::<StatefulSet>(&json!({
                "metadata": {"name": "db", "namespace": "shop", "creationTimestamp": created},
                "spec": {"replicas": 2}, "status": {"replicas": 2, "readyReplicas": ready},
            }))
        };
        for (ready, created, want) in
            [(2, OLD, None), (1, NEW, None), (1, OLD, Some(("Incomplete", "warn", "1 of 2 ready")))]
        {
            let workloads = Workloads { statefulsets: set(ready, created), ..Workloads::default() };
            let (items, _) = attention(&NodeFaults::default(), now(), &[], &workloads, &[]);
            assert_eq!(shown(&items), want.into_iter().collect::<Vec<_>>(), "{ready} {created}");
        }
        let job = |status: Value| {
            arc::<Job>(
                &json!({"metadata": {"name": "j", "namespace": "a", "creationTimestamp": OLD}, "status": status}),
            )
        };
        let failed = json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}]);
        for (status, want) in [
            (json!({"conditions": [{"type": "Complete", "status": "True"}]}), None),
            (json!({"active": 1, "ready": 1}), None),
            (json!({"startTime": NEW, "active": 1}), None),
            (
                json!({"active": 1}),
                Some(("Incomplete", "warn", "no pod is ready; 1 active, 0 failed")),
            ),
            (json!({"conditions": failed}), Some(("Failed", "bad", "BackoffLimitExceeded: m"))),
        ] {
            let workloads = Workloads { jobs: job(status.clone()), ..Workloads::default() };
            let (items, _) = attention(&NodeFaults::default(), now(), &[], &workloads, &[]);
            assert_eq!(shown(&items), want.into_iter().collect::<Vec<_>>(), "{status}");
        }
    }

    /// Returns a pod of the controller with the uid `owner`. The pod became ready or unready at this time.
    fn pod_of(owner: &str, phase: &str, at: &str) -> Arc<Pod> {
        Arc::new(decoded::<Pod>(&json!({
            "metadata": {
                "name": "p", "namespace": "a", "uid": "p", "creationTimestamp": OLD,
                "ownerReferences": [{"uid": owner, "kind": "X", "name": "x", "apiVersion": "v1", "controller": true}],
            },
            "spec": {"containers": [{"name": "c"}]},
            "status": {
                "phase": phase,
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at}],
            },
        })))
    }

    #[test]
    fn workloads_are_late_only_after_the_last_change_of_their_pods() {
        let set = arc::<StatefulSet>(&json!({
            "metadata": {"name": "db", "namespace": "a", "uid": "u", "creationTimestamp": OLD},
            "spec": {"replicas": 2}, "status": {"replicas": 2, "readyReplicas": 1},
        }));
        let job = arc::<Job>(&json!({
            "metadata": {"name": "j", "namespace": "a", "uid": "u", "creationTimestamp": OLD},
            "status": {"startTime": OLD, "active": 1},
        }));
        for workloads in [
            Workloads { statefulsets: set, ..Workloads::default() },
            Workloads { jobs: job, ..Workloads::default() },
        ] {
            for (owner, at, want) in [("u", OLD, 1), ("u", NEW, 0), ("other", NEW, 1)] {
                let pods = [pod_of(owner, "Running", at)];
                let (items, _) = attention(&NodeFaults::default(), now(), &[], &workloads, &pods);
                let incomplete = items.iter().filter(|item| item.state.text == "Incomplete");
                assert_eq!(incomplete.count(), want, "{owner} {at}: {workloads:?}");
            }
        }
    }

    #[test]
    fn pods_that_ended_need_nobody_if_their_controller_is_satisfied() {
        let meta = json!({"name": "x", "namespace": "a", "uid": "u", "creationTimestamp": OLD});
        let replicas = |ready: i32| json!({"metadata": meta, "spec": {"replicas": 2}, "status": {"readyReplicas": ready}});
        let job = |complete: &str| {
            let complete = json!({"type": "Complete", "status": complete});
            json!({"metadata": meta, "status": {"conditions": [complete], "ready": 1}})
        };
        let sets = |ready| Workloads {
            replicasets: arc::<ReplicaSet>(&replicas(ready)),
            ..Workloads::default()
        };
        let stateful =
            Workloads { statefulsets: arc::<StatefulSet>(&replicas(2)), ..Workloads::default() };
        let jobs =
            |complete| Workloads { jobs: arc::<Job>(&job(complete)), ..Workloads::default() };
        for (workloads, want) in [
            (Workloads::default(), 1),
            (sets(1), 1),
            (sets(2), 0),
            (stateful, 0),
            (jobs("False"), 1),
            (jobs("True"), 0),
        ] {
            let (items, _) = attention(
                &NodeFaults::default(),
                now(),
                &[],
                &workloads,
                &[pod_of("u", "Failed", OLD)],
            );
            let pods = items.iter().filter(|item| item.link.text == "Pod a/p").count();
            assert_eq!(pods, want, "{workloads:?}");
            // Another controller's pod, and a pod that has not ended.
            let others = [pod_of("other", "Failed", OLD), pod_of("u", "Pending", OLD)];
            let (items, _) = attention(&NodeFaults::default(), now(), &[], &workloads, &others);
            let pods = items.iter().filter(|item| item.link.text == "Pod a/p").count();
            assert_eq!(pods, 2, "{workloads:?}");
        }
    }

    #[test]
    fn pods_that_are_stuck_are_listed_once_for_an_owner() {
        let pod = |name: &str, phase: &str, created: &str, waiting: Option<&str>| {
            let state = json!({"waiting": waiting.map(|reason| json!({"reason": reason, "message": "back-off 5m"}))});
            let state = if waiting.is_some() { state } else { json!({"running": {}}) };
            let scheduled = json!({"type": "PodScheduled", "status": if phase == "Pending" { "False" } else { "True" }, "message": "0/3 nodes are available"});
            Arc::new(decoded::<Pod>(&json!({
                "metadata": {
                    "name": name, "namespace": "a", "uid": name, "creationTimestamp": created,
                    "ownerReferences": [{"uid": "rs", "kind": "ReplicaSet", "name": "rs", "apiVersion": "apps/v1", "controller": true}],
                },
                "spec": {"containers": [{"name": "c"}]},
                "status": {
                    "phase": phase, "conditions": [scheduled],
                    "containerStatuses": [{"name": "c", "ready": waiting.is_none(), "state": state}],
                },
            })))
        };
        let pods = [
            pod("crash-1", "Running", NEW, Some("CrashLoopBackOff")),
            pod("crash-2", "Running", OLD, Some("CrashLoopBackOff")),
            pod("creating", "Running", NEW, Some("ContainerCreating")),
            pod("well", "Running", OLD, None),
        ];
        let (items, more) =
            attention(&NodeFaults::default(), now(), &[], &Workloads::default(), &pods);
        assert_eq!(
            shown(&items),
            [("CrashLoopBackOff", "bad", "1 more alike; container c: back-off 5m")]
        );
        assert_eq!((&*items[0].link.text, more), ("Pod a/crash-1", 0));
        assert_eq!(items[0].link.href, "/object/core/v1/pods/a/crash-1");
        let pending = decoded::<Pod>(&json!({
            "metadata": {"name": "p", "namespace": "a", "uid": "u", "creationTimestamp": OLD},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]},
        }));
        let many: Vec<Arc<Pod>> = (0..12)
            .map(|number| {
                let mut pod = pending.clone();
                pod.meta.uid = number.to_string().as_str().into();
                Arc::new(pod)
            })
            .collect();
        let (items, more) =
            attention(&NodeFaults::default(), now(), &[], &Workloads::default(), &many);
        assert_eq!((items.len(), more), (MAX_ITEMS, 2));
        assert_eq!(shown(&items)[0], ("Pending", "warn", "0/3 nodes are available"));
    }
}
