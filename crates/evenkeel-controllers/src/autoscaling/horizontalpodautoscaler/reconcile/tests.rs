//! The steps of a reconciliation, against scripted outcomes.

use super::{super::tests::OPTIONS, *};
use crate::fixtures::{T0, deployments, discovered, label, meta, object, pod};
use evenkeel_api::views::Pod;
use evenkeel_runtime::{
    introspect,
    plan::{LiveRead, Outcome, Outcomes, Reply},
};
use serde_json::{Value, json};

/// Returns an autoscaler of 1 to 5 replicas with this metric, and two pods that request 1 CPU each.
fn cached(metric: &Value) -> CachedAutoscaler {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 5, "scaleTargetRef": target, "metrics": [metric],
    });
    let autoscaler = HorizontalPodAutoscaler {
        meta: meta("web"),
        ..object(&json!({"metadata": {}, "spec": spec}))
    };
    let containers = json!([{"name": "app", "resources": {"requests": {"cpu": "1"}}}]);
    let spec = object::<Pod>(&json!({"metadata": {}, "spec": {"containers": containers}})).spec;
    let running = |name: &str| {
        let since = T0 - Duration::from_secs(900);
        let mut pod = Pod { spec: spec.clone(), ..pod(name, Some(since)) };
        pod.status.start_time = Some(since);
        Arc::new(pod)
    };
    CachedAutoscaler {
        key: Key::new("ns", "web"),
        autoscaler: Arc::new(autoscaler),
        pods: vec![running("p0"), running("p1")],
        selectors: Selectors::default(),
        custom_version: None,
    }
}

/// Returns a CPU metric with a target of 50 % of the requests.
fn cpu() -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// Returns a custom metric of pods with a target of 10 requests for each pod.
fn requests() -> Value {
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    json!({"type": "Pods", "pods": {"metric": {"name": "requests"}, "target": target}})
}

fn reply(body: &Value) -> Outcome {
    let took = Duration::from_millis(7);
    Outcome { reply: Some(Reply::json(body.to_string())), took, ..Outcome::success() }
}

fn failed(code: u16) -> Outcome {
    Outcome::failure(Failure { code, reason: "Reason".to_owned(), ..Failure::local("no") })
}

fn scale(version: &str) -> Value {
    json!({
        "metadata": {"name": "web", "uid": "u", "resourceVersion": version},
        "spec": {"replicas": 2}, "status": {"replicas": 2, "selector": "app=web"},
    })
}

/// Acts as the API server without errors. Each pod uses the CPU that it requests, and receives 20 requests.
fn answer(action: &Action) -> Outcome {
    let Action::Read(read) = action else { return Outcome::success() };
    if read.is_discovery() {
        return discovered(vec![deployments()]);
    }
    let pod_metrics = |name: &str| {
        json!({
            "metadata": {"name": name}, "timestamp": T0.to_string(), "window": "30s",
            "containers": [{"name": "app", "usage": {"cpu": "1"}}],
        })
    };
    let metric_value = |name: &str| {
        json!({
            "describedObject": {"name": name}, "timestamp": T0.to_string(), "value": "20",
        })
    };
    let path = read.path().split('?').next().unwrap_or_default();
    match path {
        "/apis/apps/v1/namespaces/ns/deployments/web/scale" => reply(&scale("7")),
        "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods" => {
            reply(&json!({"items": [pod_metrics("p0"), pod_metrics("p1")]}))
        }
        "/apis" => {
            let version = json!({"groupVersion": "x/v1beta2", "version": "v1beta2"});
            let group = json!({
                "name": "custom.metrics.k8s.io", "versions": [version], "preferredVersion": version,
            });
            reply(&json!({"groups": [group]}))
        }
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/*/requests" => {
            reply(&json!({"items": [metric_value("p0"), metric_value("p1")]}))
        }
        other => panic!("{other}"),
    }
}

/// Runs the steps. Returns summaries of their actions, the outcomes, and the last plan.
fn run(
    cached: &CachedAutoscaler,
    mut answer: impl FnMut(&Action) -> Outcome,
) -> (Vec<String>, Outcomes, Plan) {
    let (mut summaries, mut outcomes) = (Vec::new(), Outcomes::default());
    let history = HpaHistory::default();
    loop {
        let decide = |steps: &mut Steps<'_>| plan(cached, &history, &OPTIONS, T0, steps);
        let step = Steps::next(&outcomes, decide).expect("the last step has no actions");
        if step.actions.is_empty() {
            return (summaries, outcomes, step);
        }
        for action in &step.actions {
            summaries.push(action_summary(action));
            outcomes.0.push(answer(action));
        }
    }
}

fn action_summary(action: &Action) -> String {
    match action {
        Action::Event(event) => event.reason.to_string(),
        Action::Update(update) => {
            let body: Value = serde_json::from_slice(&update.body).expect("JSON");
            let replicas = &body["spec"]["replicas"];
            let version = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            format!("{} {replicas} {version}", update.subresource)
        }
        Action::Read(LiveRead { delay, .. }) if !delay.is_zero() => {
            format!("{} after {delay:?}", introspect::action(action))
        }
        other => introspect::action(other),
    }
}

fn reconciliation(cached: &CachedAutoscaler, outcomes: &Outcomes) -> Reconciliation {
    let (history, steps) = (HpaHistory::default(), &mut Steps::of(outcomes));
    reconcile_autoscaler(cached, &history, &OPTIONS, T0, steps).unwrap_or_else(|_| panic!("done"))
}

const DISCOVER: &str = "discover the API's resources";
const SCALE: &str = "read /apis/apps/v1/namespaces/ns/deployments/web/scale live";
const RETRIED_READ: &str = "read /apis/apps/v1/namespaces/ns/deployments/web/scale live after 10ms";
const CPU: &str =
    "read /apis/metrics.k8s.io/v1beta1/namespaces/ns/pods?labelSelector=app%3Dweb live";

#[test]
fn resource_metric_scales_the_target() {
    let cached = cached(&cpu());
    let (summaries, outcomes, last) = run(&cached, answer);
    let expected = [DISCOVER, SCALE, CPU, "scale 4 7", "SuccessfulRescale", "status null 1"];
    assert_eq!(summaries, expected);
    assert_eq!(last, Plan { requeue: Some(OPTIONS.sync_period), ..Plan::nothing() });
    let reconciliation = reconciliation(&cached, &outcomes);
    assert_eq!((reconciliation.action, reconciliation.desired), (ScalingAction::Up, Some(4)));
    assert!(reconciliation.history != HpaHistory::default(), "the recommendation is recorded");
    let [computation] = &reconciliation.computations[..] else { panic!("one metric") };
    assert_eq!(computation.took, Duration::from_millis(7), "the duration of its own read");
}

#[test]
fn conflicting_scale_update_is_retried() {
    let (cached, mut conflicts_sent) = (cached(&cpu()), 0);
    let mut conflicts = |count: u32| {
        conflicts_sent = 0;
        run(&cached, |action| match action {
            Action::Update(update) if update.subresource == "scale" && conflicts_sent < count => {
                conflicts_sent += 1;
                failed(409)
            }
            Action::Read(read) if !read.delay.is_zero() => reply(&scale("8")),
            other => answer(other),
        })
    };
    let (summaries, _, last) = conflicts(1);
    assert_eq!(summaries[3..6], ["scale 4 7", RETRIED_READ, "scale 4 8"]);
    assert_eq!(last.error, None);
    let (summaries, outcomes, last) = conflicts(9);
    assert_eq!(summaries.iter().filter(|summary| summary.starts_with("scale")).count(), 5);
    assert_eq!(summaries[summaries.len() - 2..], ["FailedRescale", "status null 1"]);
    assert_eq!(last, Plan::failure("failed to rescale: no"));
    assert_eq!(reconciliation(&cached, &outcomes).action, ScalingAction::Nothing);
}

#[test]
fn custom_metrics_version_is_discovered_once_per_period() {
    let mut cached = cached(&requests());
    let custom = "read /apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/*/requests?labelSelector=app%3Dweb live";
    let discovered_before = |seconds| {
        let at = T0 - Duration::from_secs(seconds);
        Some(DiscoveredVersion { version: "v1beta2".into(), at })
    };
    let (summaries, outcomes, _) = run(&cached, answer);
    assert_eq!(summaries[2..5], ["read /apis live", custom, "scale 4 7"]);
    assert_eq!(reconciliation(&cached, &outcomes).custom_version.as_deref(), Some("v1beta2"));
    cached.custom_version = discovered_before(14);
    let (summaries, outcomes, _) = run(&cached, answer);
    assert_eq!(summaries[2..4], [custom, "scale 4 7"]);
    assert_eq!(reconciliation(&cached, &outcomes).custom_version, None);
    cached.custom_version = discovered_before(15);
    assert_eq!(run(&cached, answer).0[2], "read /apis live");
}

#[test]
fn missing_scale_subresource_is_reported() {
    let cached = cached(&cpu());
    let (summaries, outcomes, last) = run(&cached, |action| match action {
        Action::Read(read) if read.path().ends_with("/scale") => failed(404),
        other => answer(other),
    });
    assert_eq!(summaries, [DISCOVER, SCALE, "FailedGetScale", "status null 1"]);
    let why = "failed to query scale subresource for Deployment/ns/web: no";
    assert_eq!(last, Plan::failure(why));
    assert_eq!(reconciliation(&cached, &outcomes).result.map_err(|p| p.is_spec_error), Err(false));
}

#[test]
fn ambiguous_selector_reads_no_metrics() {
    let mut cached = cached(&cpu());
    let web = Selector::from_map(&label("app", "web"));
    cached.selectors.record(&Key::new("ns", "another"), &web);
    let (summaries, outcomes, last) = run(&cached, answer);
    assert_eq!(summaries[..3], [DISCOVER, SCALE, "AmbiguousSelector"]);
    assert!(last.error.is_some());
    assert!(
        reconciliation(&cached, &outcomes).selector.is_some(),
        "recorded for the other autoscalers"
    );
}

#[test]
fn failed_status_update_is_an_error() {
    let cached = cached(&cpu());
    let (_, outcomes, last) = run(&cached, |action| match action {
        Action::Update(update) if update.subresource == "status" => failed(500),
        other => answer(other),
    });
    assert_eq!(last, Plan::failure("failed to update status for web: no"));
    assert_eq!(
        reconciliation(&cached, &outcomes).action,
        ScalingAction::Up,
        "the target is scaled anyway"
    );
}

#[test]
fn group_is_parsed_from_api_version() {
    for (api_version, expected) in
        [("apps/v1", Some("apps")), ("v1", Some("")), ("", Some("")), ("a/b/c", None)]
    {
        assert_eq!(group_of(api_version).ok(), expected, "{api_version}");
    }
}
