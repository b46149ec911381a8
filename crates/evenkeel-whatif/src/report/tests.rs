//! Tests of reports, on hand-written recordings.

use super::*;
use crate::recording::{EventKind, NodeRecord, PodRecord, tests::event};
use evenkeel_api::time::Timestamp;
use std::collections::BTreeMap;

fn pod(workload: &str, node: &str, ready: bool) -> PodRecord {
    let requests = Amounts { cpu_millis: 500, memory: 100 };
    PodRecord {
        workload: workload.to_owned(),
        node: node.to_owned(),
        requests,
        ready,
        ..PodRecord::default()
    }
}

fn node() -> NodeRecord {
    NodeRecord { allocatable: Amounts { cpu_millis: 1000, memory: 1000 }, ready: true }
}

/// Returns a recording of an hour on the nodes `a` and `b`, with the pod `shop/web-1` on `a`.
fn recording(happened: Vec<RecordedEvent>) -> Recording {
    Recording {
        start: Timestamp::UNIX_EPOCH,
        duration: Duration::from_secs(3600),
        settling: Duration::ZERO,
        nodes: ["a", "b"].map(|name| (name.to_owned(), node())).into(),
        pods: [("shop/web-1".to_owned(), pod("Deployment shop/web", "a", true))].into(),
        budgets: [("shop/web".to_owned(), 1)].into(),
        happened,
        unrecorded: 0,
        writes: BTreeMap::new(),
        remarks: Vec::new(),
    }
}

fn moved() -> Vec<RecordedEvent> {
    let reason = "EvictionByEvictionAPI".to_owned();
    let created = EventKind::Created { pod: pod("Deployment shop/web", "", false) };
    vec![
        event(1, "Change", "drain a", EventKind::Began),
        event(1, "Pod", "shop/web-1", EventKind::Evicted { reason }),
        event(1, "Pod", "shop/web-1", EventKind::NotReady),
        event(1, "PodDisruptionBudget", "shop/web", EventKind::Allows { disruptions: 0 }),
        event(2, "Pod", "shop/web-2", created),
        event(3, "Pod", "shop/web-2", EventKind::Bound { node: "b".to_owned() }),
        event(4, "Pod", "shop/web-1", EventKind::Removed),
        event(4, "Change", "drain a", EventKind::Completed),
        event(9, "Pod", "shop/web-2", EventKind::Ready),
        event(9, "PodDisruptionBudget", "shop/web", EventKind::Allows { disruptions: 1 }),
    ]
}

#[test]
fn a_pod_that_moves_leaves_a_shortage_and_a_peak() {
    let report = report(&recording(moved()));
    assert_eq!(report.settled_after, Some(Duration::from_secs(9)));
    assert_eq!(report.parts.len(), 1);
    assert_eq!(report.parts[0].completed, Some(Duration::from_secs(4)));
    assert_eq!(report.pending, []);
    let eviction = &report.evicted[0];
    assert_eq!((&*eviction.pod, &*eviction.node), ("shop/web-1", "a"));
    let shortage = Shortage {
        workload: "Deployment shop/web".to_owned(),
        before: 1,
        lowest: 0,
        end: 1,
        duration: Duration::from_secs(8),
    };
    assert_eq!(report.shortages, [shortage]);
    let budget = &report.budgets[0];
    assert_eq!(
        (budget.exhausted, budget.before, budget.allows),
        (Duration::from_secs(8), false, 1)
    );
    let peaks: Vec<_> =
        report.nodes.iter().map(|node| (node.peak.cpu_millis, node.end.cpu_millis)).collect();
    assert_eq!(peaks, [(500, 0), (500, 500)]);
    let placement =
        Placement { workload: "Deployment shop/web".to_owned(), node: "b".to_owned(), pods: 1 };
    assert_eq!(report.placements, [placement]);
}

#[test]
fn a_pod_that_fits_nowhere_is_pending_with_the_schedulers_words() {
    let mut happened = moved();
    happened.truncate(5);
    let message = "0/2 nodes are available".to_owned();
    happened.push(event(
        3,
        "Pod",
        "shop/web-2",
        EventKind::Unschedulable { message: message.clone() },
    ));
    let report = report(&recording(happened));
    assert_eq!(report.pending.len(), 1);
    let pending = &report.pending[0];
    assert_eq!((&*pending.pod, &pending.message, pending.before), ("shop/web-2", &message, false));
    assert_eq!(pending.since, Duration::from_secs(2));
    assert_eq!(report.parts[0].completed, None);
    assert_eq!(report.budgets[0].exhausted, Duration::from_secs(3599));
    assert_eq!(report.shortages[0].duration, Duration::from_secs(3599));
}

#[test]
fn parts_that_never_began_are_listed() {
    let part = |second, name: &str, what| event(second, "Change", name, what);
    let happened = vec![
        part(0, "apply ConfigMap c", EventKind::Planned),
        part(0, "apply ConfigMap c", EventKind::Planned),
        part(0, "drain a", EventKind::Planned),
        part(0, "drain b", EventKind::Planned),
        part(0, "apply ConfigMap c", EventKind::Began),
        part(1, "apply ConfigMap c", EventKind::Completed),
        part(1, "apply ConfigMap c", EventKind::Began),
        part(2, "apply ConfigMap c", EventKind::Failed { message: "refused".to_owned() }),
        part(2, "cordon a", EventKind::Failed { message: "conflict".to_owned() }),
        part(2, "drain a", EventKind::Began),
    ];
    let report = report(&recording(happened));
    let outcomes: Vec<String> = report
        .parts
        .iter()
        .map(|part| format!("{} {} {}", part.description, part.began.as_secs(), part.outcome()))
        .collect();
    let expected = [
        "apply ConfigMap c 0 done after 1s",
        "apply ConfigMap c 1 refused",
        "drain a 2 not done at the end",
        "drain b 3600 not begun at the end",
        "cordon a 2 conflict",
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(report.failed().count(), 2);
}

#[test]
fn budgets_that_refuse_or_were_at_their_limit_before_are_reported() {
    let refused = EventKind::Refused { pod: "shop/web-1".to_owned() };
    let mut recording = recording(vec![event(5, "PodDisruptionBudget", "shop/web", refused)]);
    recording.budgets.insert("shop/db".to_owned(), 0);
    let budgets = report(&recording).budgets;
    assert_eq!(budgets.len(), 2);
    assert_eq!((&*budgets[0].budget, budgets[0].before), ("shop/db", true));
    assert_eq!(budgets[0].exhausted, recording.duration);
    assert_eq!(budgets[1].refused, ["shop/web-1"]);
}

#[test]
fn jobs_do_not_keep_a_cluster_from_settling() {
    let mut happened = moved();
    happened.push(event(
        3590,
        "Pod",
        "shop/tick",
        EventKind::Created { pod: pod("Job shop/t", "", false) },
    ));
    happened.push(event(3591, "Pod", "shop/tick", EventKind::Removed));
    let with_job = report(&recording(happened.clone()));
    assert_eq!(with_job.settled_after, Some(Duration::from_secs(9)));
    happened.push(event(3592, "Node", "a", EventKind::NotReady));
    assert_eq!(report(&recording(happened)).settled_after, None);
    assert_eq!(report(&recording(Vec::new())).settled_after, Some(Duration::ZERO));
}

#[test]
fn ended_pods_free_their_node_once() {
    let phase = "Succeeded".to_owned();
    let happened = vec![
        event(5, "Pod", "shop/web-1", EventKind::Ended { phase }),
        event(6, "Pod", "shop/web-1", EventKind::Removed),
        event(7, "Node", "b", EventKind::NotReady),
        event(9, "Node", "b", EventKind::Removed),
    ];
    let nodes = report(&recording(happened)).nodes;
    assert_eq!((nodes[0].end, nodes[0].peak_pods), (Amounts::default(), 1));
    assert_eq!((nodes[1].not_ready, nodes[1].removed), (Duration::from_secs(2), true));
}

#[test]
fn a_pod_that_leaves_as_another_becomes_ready_is_no_shortage() {
    let created = EventKind::Created { pod: pod("Deployment shop/web", "b", false) };
    let replaced = |ready: u64| {
        vec![
            event(5, "Pod", "shop/web-2", created.clone()),
            // The expected order: pods that leave are first.
            event(9, "Pod", "shop/web-1", EventKind::Removed),
            event(ready, "Pod", "shop/web-2", EventKind::Ready),
        ]
    };
    assert_eq!(report(&recording(replaced(9))).shortages, []);
    assert_eq!(charts(&recording(replaced(9))).workloads, []);
    let late = report(&recording(replaced(11))).shortages;
    assert_eq!((late[0].lowest, late[0].duration), (0, Duration::from_secs(2)));
    let at_once = vec![event(0, "Pod", "shop/web-1", EventKind::Removed)];
    let gone = &report(&recording(at_once)).shortages[0];
    assert_eq!((gone.lowest, gone.duration), (0, Duration::from_secs(3600)));
}
