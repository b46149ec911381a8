//! Pods as a table in kubectl's columns, those with problems first.

use super::{ago::Ago, list::MAX_ROWS, podstatus::PodStatus};
use crate::route::ListQuery;
use evenkeel_api::{
    selector::Selector,
    time::{Timestamp, seconds},
    views::Pod,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Filter for all pods that are neither ready nor completed. It cannot be a pod's status, because statuses are in CamelCase.
pub(crate) const NOT_READY: &str = "not-ready";

/// Pods of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodTable {
    /// The page's pods in the form of a `Table` (`meta.k8s.io/v1`).
    pub(crate) table: Value,
    /// Number of pods by status, without the query's filter by status.
    pub(crate) statuses: Vec<(String, usize)>,
}

/// Returns the rank of a tone: problems first.
pub(crate) fn rank(tone: &str) -> u8 {
    match tone {
        "bad" => 0,
        "warn" => 1,
        _ => 2,
    }
}

/// Returns a page of the pods that a query selects. Its continue token is the number of pods on previous pages.
pub(crate) fn pod_table(
    now: Timestamp,
    pods: &[Arc<Pod>],
    query: &ListQuery,
    labels: &Selector,
) -> PodTable {
    let is_selected = |pod: &Pod| {
        (query.namespace.is_empty() || *pod.meta.namespace == *query.namespace)
            && (query.node.is_empty() || *pod.spec.node_name == *query.node)
            && labels.matches(&pod.meta.labels)
    };
    let mut pods: Vec<(PodStatus, &Pod)> = pods
        .iter()
        .map(|pod| &**pod)
        .filter(|pod| is_selected(pod))
        .map(|pod| (PodStatus::of(pod), pod))
        .collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (status, _) in &pods {
        *counts.entry(&status.word).or_default() += 1;
    }
    let not_ready = pods.iter().filter(|(status, _)| status.is_not_ready()).count();
    let mut statuses: Vec<(String, usize)> =
        counts.into_iter().map(|(word, count)| (word.to_owned(), count)).collect();
    if not_ready > 0 {
        statuses.insert(0, (NOT_READY.to_owned(), not_ready));
    }
    pods.retain(|(status, _)| match &*query.status {
        "" => true,
        NOT_READY => status.is_not_ready(),
        word => status.word == word,
    });
    pods.sort_by(|(a, one), (b, two)| {
        let by = |status: &PodStatus| rank(status.tone());
        let name = |pod: &Pod| (pod.meta.namespace.clone(), pod.meta.name.clone());
        by(a).cmp(&by(b)).then_with(|| name(one).cmp(&name(two)))
    });
    let start = query.after.parse().unwrap_or(0).min(pods.len());
    let end = pods.len().min(start + MAX_ROWS);
    let rows: Vec<Value> =
        pods[start..end].iter().map(|(status, pod)| row(now, status, pod)).collect();
    let remaining = pods.len() - end;
    let metadata = match remaining {
        0 => json!({}),
        _ => json!({"continue": end.to_string(), "remainingItemCount": remaining}),
    };
    let columns = [("Name", "name"), ("Ready", ""), ("Status", ""), ("Restarts", ""), ("Age", "")];
    let columns =
        columns.map(|(name, format)| json!({"name": name, "format": format, "priority": 0}));
    PodTable {
        table: json!({"metadata": metadata, "columnDefinitions": columns, "rows": rows}),
        statuses,
    }
}

fn row(now: Timestamp, status: &PodStatus, pod: &Pod) -> Value {
    let restarts = match status.last_restart {
        Some(last) if status.restarts > 0 => {
            format!("{} ({} ago)", status.restarts, Ago::new(now, last).text)
        }
        _ => status.restarts.to_string(),
    };
    let ready = format!("{}/{}", status.ready, status.total);
    json!({
        "cells": [&*pod.meta.name, ready, status.word, restarts, ""],
        "object": {"metadata": {
            "name": &*pod.meta.name,
            "namespace": &*pod.meta.namespace,
            "creationTimestamp": pod.meta.creation.map(seconds),
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::decoded;

    fn pods() -> Vec<Arc<Pod>> {
        let pod = |name: &str, namespace: &str, node: &str, phase: &str, waiting: Option<&str>| {
            let state = waiting
                .map_or(json!({"running": {}}), |reason| json!({"waiting": {"reason": reason}}));
            let statuses = match phase {
                "Pending" => json!([]),
                _ => {
                    json!([{"name": "c", "ready": waiting.is_none(), "state": state, "restartCount": 0}])
                }
            };
            Arc::new(decoded::<Pod>(&json!({
                "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
                "spec": {"nodeName": node, "containers": [{"name": "c"}]},
                "status": {"phase": phase, "containerStatuses": statuses},
            })))
        };
        vec![
            pod("a", "shop", "n1", "Running", None),
            pod("b", "shop", "", "Pending", None),
            pod("c", "shop", "n1", "Running", Some("CrashLoopBackOff")),
            pod("d", "other", "n2", "Running", None),
        ]
    }

    fn names(query: &ListQuery, labels: &str) -> (Vec<String>, Vec<(String, usize)>) {
        let now = Timestamp::from_second(0).expect("a time");
        let labels = Selector::parse(labels).expect("a selector");
        let PodTable { table, statuses } = pod_table(now, &pods(), query, &labels);
        let rows = table["rows"].as_array().expect("rows").iter();
        let name = |row: &Value| row["cells"][0].as_str().unwrap_or_default().to_owned();
        (rows.map(name).collect(), statuses)
    }

    #[test]
    fn problems_are_first_and_filters_select() {
        let (all, statuses) = names(&ListQuery::default(), "");
        assert_eq!(all, ["c", "b", "d", "a"]);
        let want = [(NOT_READY, 2), ("CrashLoopBackOff", 1), ("Pending", 1), ("Running", 2)];
        assert_eq!(statuses, want.map(|(word, count)| (word.to_owned(), count)));
        let status = |word: &str| ListQuery { status: word.to_owned(), ..ListQuery::default() };
        for (query, labels, want) in [
            (status("Pending"), "", vec!["b"]),
            (status(NOT_READY), "", vec!["c", "b"]),
            (status("Nothing"), "", vec![]),
            (ListQuery { node: "n1".to_owned(), ..status("Running") }, "", vec!["a"]),
            (ListQuery { namespace: "other".to_owned(), ..ListQuery::default() }, "", vec!["d"]),
            (ListQuery::default(), "app in (a,b)", vec!["b", "a"]),
            (ListQuery { after: "3".to_owned(), ..ListQuery::default() }, "", vec!["a"]),
            (ListQuery { after: "99".to_owned(), ..ListQuery::default() }, "", vec![]),
        ] {
            assert_eq!(names(&query, labels).0, want, "{query:?} {labels}");
        }
    }

    #[test]
    fn a_page_has_a_next_one() {
        let pods: Vec<Arc<Pod>> = pods().into_iter().cycle().take(MAX_ROWS + 3).collect();
        let now = Timestamp::from_second(0).expect("a time");
        let labels = Selector::parse("").expect("a selector");
        let page = pod_table(now, &pods, &ListQuery::default(), &labels);
        assert_eq!(page.table["metadata"], json!({"continue": "500", "remainingItemCount": 3}));
    }
}
