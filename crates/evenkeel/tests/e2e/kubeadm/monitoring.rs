//! Alerts and dashboards of the scheduler and of the API server: they select series that exist.

use super::{
    exposition::{Families, Sample, read as read_exposition},
    manifests::{dashboard_queries, rule_queries},
    queries::missing,
};
use evenkeel_test::TestServer;
use std::path::PathBuf;

/// Returns the metrics of a program, from the reference pages.
fn documented(program: &str) -> Families {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let text = std::fs::read_to_string(path).expect("the reference");
    let mut families = Families::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<String> =
            line.split('|').map(|cell| cell.trim().replace('\\', "")).collect();
        let [_, name, kind, _, labels, programs, _] = cells.as_slice() else {
            panic!("{line}");
        };
        if !programs.split(", ").any(|one| one == program) {
            continue;
        }
        let name = name.trim_matches('`').to_owned();
        let labels = labels.split(", ").chain(["le"]);
        let labels = labels.map(|label| (label.to_owned(), "x".to_owned())).collect();
        let suffix = if kind == "histogram" { "_bucket" } else { "" };
        let sample = Sample { name: format!("{name}{suffix}"), labels, value: 1.0 };
        families.entry(name).or_default().samples.push(sample);
    }
    families
}

/// Returns the series that the rules and the dashboard of this name select and that are missing here.
fn missing_in(name: &str, families: &Families) -> Vec<String> {
    let (mut queries, recorded) = rule_queries(&format!("prometheus/{name}.yaml"));
    queries.extend(dashboard_queries(&format!("grafana/{name}.json")));
    assert!(queries.len() > 15, "{name}: all queries are read");
    queries.iter().flat_map(|query| missing(query, families, &recorded)).collect()
}

#[test]
fn series_of_the_scheduler_are_documented() {
    let mut families = documented("scheduler");
    assert!(families.len() > 60);
    // `/metrics/slis` serves them; the reference has `/metrics`.
    for label in ["name", "type"] {
        let labels = vec![(label.to_owned(), "x".to_owned())];
        let sample = Sample { name: "kubernetes_healthcheck".to_owned(), labels, value: 1.0 };
        families.entry("kubernetes_healthcheck".to_owned()).or_default().samples.push(sample);
    }
    assert_eq!(missing_in("scheduler", &families), [""; 0]);
    families.remove("scheduler_pending_pods");
    assert!(!missing_in("scheduler", &families).is_empty(), "the comparison finds what is missing");
}

#[tokio::test]
async fn series_of_the_api_server_are_served() {
    let server = TestServer::start().await.expect("a server");
    let client = server.client();
    let get = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        client.request_text(request).await.expect("an answer")
    };
    for path in ["/api/v1/namespaces", "/readyz", "/metrics", "/metrics/slis"] {
        get(path).await;
    }
    let text = get("/metrics").await + &get("/metrics/slis").await;
    let families = read_exposition(&text).expect("an exposition");
    // A counter without an event has no series yet, so it has no labels.
    let has_no_series = |missing: &String| {
        missing.split_once('{').is_some_and(|(name, _)| {
            let family = name.strip_suffix("_bucket").unwrap_or(name);
            families.get(family).is_some_and(|family| family.samples.is_empty())
        })
    };
    let mut missing = missing_in("api-server", &families);
    missing.retain(|missing| !has_no_series(missing));
    assert_eq!(missing, [""; 0]);
    server.stop().await;
}
