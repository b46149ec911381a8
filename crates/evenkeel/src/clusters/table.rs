//! Output of `evenkeel list` and `evenkeel status`.

use super::record::{Cluster, Record, State, context};
use evenkeel_api::time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Status that a running process reports on its control socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LiveStatus {
    /// Number of nodes.
    pub(crate) nodes: usize,
    /// Number of nodes that are Ready.
    pub(crate) ready_nodes: usize,
    /// Number of pods.
    pub(crate) pods: usize,
    /// Resources whose caches have not synced.
    pub(crate) unsynced: Vec<String>,
}

const HEADS: [&str; 5] = ["NAME", "STATE", "PID", "API SERVER", "CONTEXT"];

/// Returns the table of clusters.
pub(super) fn table(clusters: &[Cluster]) -> String {
    let rows = clusters.iter().map(|cluster| {
        let record = cluster.record.as_ref();
        let pid = record.filter(|_| cluster.state.is_alive()).map(|record| record.pid.to_string());
        let url = record.and_then(|record| record.url.clone());
        [
            cluster.name.clone(),
            cluster.state.word().to_owned(),
            pid.unwrap_or_else(|| "-".to_owned()),
            url.unwrap_or_else(|| "-".to_owned()),
            context(&cluster.name),
        ]
    });
    let rows: Vec<[String; 5]> = std::iter::once(HEADS.map(str::to_owned)).chain(rows).collect();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            format!("{cell:width$}", width = width(column).unwrap_or_default())
        });
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    text
}

/// Returns a cluster as JSON: its record, its state and the report of its process.
pub(super) fn json(cluster: &Cluster, live: Option<&LiveStatus>) -> Value {
    let mut value = json!(cluster.record);
    if !value.is_object() {
        value = json!({ "name": cluster.name });
    }
    value["state"] = json!(cluster.state);
    value["context"] = context(&cluster.name).into();
    if let Some(live) = live {
        value["live"] = json!(live);
    }
    value
}

/// Returns the time of a start in whole seconds.
fn since(record: &Record) -> String {
    record.started_at.parse().map_or_else(|_| record.started_at.clone(), time::seconds)
}

/// Returns the status of a cluster.
pub(super) fn status(cluster: &Cluster, live: Option<&LiveStatus>) -> String {
    let record = cluster.record.as_ref();
    let path = |field: fn(&Record) -> Option<String>| record.and_then(field);
    let state = match (cluster.state, record) {
        (State::Starting, Some(Record { starting: Some(on), .. })) => format!("starting: {on}"),
        (State::Failed, Some(Record { failure: Some(why), .. })) => format!("failed: {why}"),
        (state, _) => state.word().to_owned(),
    };
    let alive = record.filter(|_| cluster.state.is_alive());
    let lines = [
        ("name", Some(cluster.name.clone())),
        ("state", Some(state)),
        ("process", alive.map(|record| format!("{} since {}", record.pid, since(record)))),
        ("API server", path(|record| record.url.clone())),
        ("console", alive.and_then(|record| record.console.clone())),
        ("nodes", live.map(|live| format!("{} of {} Ready", live.ready_nodes, live.nodes))),
        ("pods", live.map(|live| live.pods.to_string())),
        (
            "waits for",
            live.filter(|live| !live.unsynced.is_empty()).map(|live| live.unsynced.join(", ")),
        ),
        ("context", Some(context(&cluster.name))),
        ("kubeconfig", path(|r| r.kubeconfig.as_ref().map(|path| path.display().to_string()))),
        ("added to", path(|r| r.merged_into.as_ref().map(|path| path.display().to_string()))),
        ("data folder", path(|r| r.data_dir.as_ref().map(|path| path.display().to_string()))),
        ("log", path(|record| Some(record.log.display().to_string()))),
    ];
    let lines = lines.into_iter().filter_map(|(name, value)| Some((name, value?)));
    lines.map(|(name, value)| format!("{name:<12} {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::record::tests::{cluster, record};

    #[test]
    fn the_table_is_aligned_and_dead_clusters_have_no_process() {
        let unknown = Cluster { name: "c".to_owned(), state: State::Starting, record: None };
        let clusters = [cluster("default", State::Running), cluster("b", State::Crashed), unknown];
        assert_eq!(
            table(&clusters),
            "NAME      STATE      PID   API SERVER               CONTEXT\n\
             default   running    7     https://127.0.0.1:6443   evenkeel-default\n\
             b         crashed    -     https://127.0.0.1:6443   evenkeel-b\n\
             c         starting   -     -                        evenkeel-c\n"
        );
    }

    #[test]
    fn the_status_says_what_a_start_waits_for_and_why_one_failed() {
        let live = LiveStatus { nodes: 3, ready_nodes: 2, pods: 5, unsynced: Vec::new() };
        let running = status(&cluster("a", State::Running), Some(&live));
        assert!(running.contains("nodes        2 of 3 Ready\npods         5\n"), "{running}");
        assert!(running.contains("console      http://127.0.0.1:7070/?token=t\n"), "{running}");
        assert!(running.contains("process      7 since 2026-01-02T03:04:05Z\n"), "{running}");
        let precise =
            Record { started_at: "2026-01-02T03:04:05.029215748Z".to_owned(), ..record("a") };
        let precise = Cluster { record: Some(precise), ..cluster("a", State::Running) };
        let precise = status(&precise, None);
        assert!(precise.contains("process      7 since 2026-01-02T03:04:05Z\n"), "{precise}");
        let with = |state, record| Cluster { name: "a".to_owned(), state, record: Some(record) };
        let starting = Record { starting: Some("API server".to_owned()), ..record("a") };
        let failed = Record { failure: Some("no disk".to_owned()), ..record("a") };
        let starting = status(&with(State::Starting, starting), None);
        assert!(starting.contains("state        starting: API server\n"), "{starting}");
        let failed = status(&with(State::Failed, failed), None);
        assert!(failed.contains("state        failed: no disk\n"), "{failed}");
        assert!(!failed.contains("process") && !failed.contains("console"), "{failed}");
    }

    #[test]
    fn json_has_the_record_and_the_state() {
        let value = json(&cluster("a", State::Running), Some(&LiveStatus::default()));
        assert_eq!(
            (&value["name"], &value["state"], &value["pid"], &value["live"]["readyNodes"]),
            (&"a".into(), &"running".into(), &7.into(), &0.into())
        );
        let unknown = Cluster { name: "c".to_owned(), state: State::Starting, record: None };
        assert_eq!(json(&unknown, None)["context"], "evenkeel-c");
    }
}
