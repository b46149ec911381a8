//! Text format of reports in the output of `evenkeel explain`.

use super::{ObjectReport, format_duration};
use evenkeel_api::time::Timestamp;
use std::{fmt::Write as _, time::Duration};

/// Formats one controller's report on one object, indented by `indent` spaces.
pub fn render(report: &ObjectReport, now: Timestamp, indent: usize) -> String {
    let mut out = String::new();
    let pad = " ".repeat(indent);
    let of_cluster = match &*report.cluster {
        "" => String::new(),
        cluster => format!(" (cluster {cluster})"),
    };
    let _ = writeln!(out, "{pad}{}{of_cluster}", report.controller);
    let mut line = |head: &str, text: &str| {
        let _ = writeln!(out, "{pad}  {head:<6} {text}");
    };
    if !report.exists {
        line("sees", "no such object");
    }
    let width = report.sees.iter().map(|fact| fact.what.len()).max().unwrap_or(0);
    for (index, fact) in report.sees.iter().enumerate() {
        let head = if index == 0 { "sees" } else { "" };
        line(head, &format!("{:<width$}  {}", fact.what, fact.value));
    }
    if report.would.is_empty() && report.exists {
        line("would", "do nothing");
    }
    for (index, action) in report.would.iter().enumerate() {
        line(if index == 0 { "would" } else { "" }, action);
    }
    for (index, why) in report.waits.iter().enumerate() {
        line(if index == 0 { "waits" } else { "" }, why);
    }
    if let Some(last) = &report.last {
        let age = Duration::try_from(now.duration_since(last.at)).unwrap_or_default();
        let did = if last.did.is_empty() { "nothing".to_owned() } else { last.did.join("; ") };
        // The last action's outcome says how the pass ended.
        let ended = match did.ends_with(&format!(": {}", last.ended)) {
            true => String::new(),
            false => format!(": {}", last.ended),
        };
        line("last", &format!("{} ago: {did}{ended}", format_duration(age)));
        if let Some(error) = &last.error {
            line("", error);
        }
        if let Some(because) = &last.because {
            line("", &format!("because {because}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Fact, Pass, Subject};
    use super::*;

    #[test]
    fn a_report_lists_facts_actions_waits_and_the_last_pass() {
        let fact = |what: &str, value: &str| Fact { what: what.into(), value: value.into() };
        let report = ObjectReport {
            controller: "replicaset-controller".into(),
            object: Subject::new("apps", "ReplicaSet", "ns", "web"),
            exists: true,
            sees: vec![fact("wanted", "3 pods"), fact("own", "1 pod")],
            would: vec!["create 2 Pods ns/web-xxxxx".into()],
            waits: vec!["back-off".into()],
            last: Some(Pass {
                key: "ns/web".into(),
                at: Timestamp::UNIX_EPOCH,
                seconds: 0.1,
                did: vec!["create 2 Pod in ns: failed".into()],
                ended: "failed".into(),
                error: Some("exceeded quota".into()),
                because: Some("ReplicaSet ns/web was updated".into()),
            }),
            ..ObjectReport::default()
        };
        let now = Timestamp::from_second(20).unwrap();
        let wanted = "  replicaset-controller
    sees   wanted  3 pods
           own     1 pod
    would  create 2 Pods ns/web-xxxxx
    waits  back-off
    last   20s ago: create 2 Pod in ns: failed
           exceeded quota
           because ReplicaSet ns/web was updated
";
        assert_eq!(render(&report, now, 2), wanted);
        let of_cluster = ObjectReport { cluster: "east".into(), ..report };
        assert!(
            render(&of_cluster, now, 2).starts_with("  replicaset-controller (cluster east)\n")
        );
    }
}
