//! Tables and properties of an autoscaler's decisions.

use super::{
    Options,
    metric::{self, Proposal, ReadResult},
    plan::{self, Approach, Observed, Proposals, SelectorError},
    readings::Reading,
    replicas::{CalculatorInputs, ReplicaCount, Tolerances},
    samples::{Sample, Samples},
    selectors::{self, Selectors},
    stabilization::HpaHistory,
    status::StatusBuilder,
};
use crate::{
    fixtures::{T0, at, label, meta, object, pod},
    scale::Scale,
};
use evenkeel_api::{
    condition,
    selector::Selector,
    time::{SignedDuration, Timestamp},
    views::{HorizontalPodAutoscaler, MetricSpec, Pod},
};
use evenkeel_runtime::plan::{Action, Key, lint};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Upstream's defaults, with one worker and all gates on.
pub(super) const OPTIONS: Options = Options {
    concurrent_syncs: 1,
    sync_period: Duration::from_secs(15),
    downscale_stabilization: Duration::from_secs(300),
    tolerance: 0.1,
    cpu_initialization_period: Duration::from_secs(300),
    initial_readiness_delay: Duration::from_secs(30),
    scale_to_zero: true,
    observe_generation: true,
    configurable_tolerance: true,
    pod_level_resources: true,
};

/// State of a pod in the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodState {
    Ready,
    /// Running, and never ready.
    Unready,
    Pending,
    Failed,
    Terminating,
}

/// Returns a pod in this state, which requests 1 CPU and started ten minutes ago.
fn pod_in_state(n: usize, state: PodState) -> Arc<Pod> {
    let containers =
        json!([{"name": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]);
    let spec = object::<Pod>(&json!({"metadata": {}, "spec": {"containers": containers}})).spec;
    let started = at(-600);
    let mut pod = Pod { spec, ..pod(&format!("p{n}"), Some(at(-590))) };
    pod.status.start_time = Some(started);
    match state {
        PodState::Ready => {}
        PodState::Unready => {
            let mut conditions = pod.status.conditions.to_vec();
            conditions[0].status = "False".into();
            conditions[0].last_transition_time = Some(started);
            pod.status.conditions = conditions.into();
        }
        PodState::Pending => pod.status.phase = "Pending".into(),
        PodState::Failed => pod.status.phase = "Failed".into(),
        PodState::Terminating => pod.meta.deletion = Some(T0),
    }
    Arc::new(pod)
}

fn pods(states: &[PodState]) -> Vec<Arc<Pod>> {
    states.iter().enumerate().map(|(n, state)| pod_in_state(n, *state)).collect()
}

/// Returns samples of the first pods, without those whose value is `None`.
fn samples(values: &[Option<i64>]) -> Samples {
    let window = Duration::from_secs(30);
    let each = values.iter().enumerate().filter_map(|(n, value)| {
        Some((format!("p{n}").into(), Sample { value: (*value)?, at: T0, window }))
    });
    each.collect()
}

fn calculator<'a>(pods: &'a [Arc<Pod>], replicas: i32) -> CalculatorInputs<'a> {
    let tolerances = Tolerances { down: 0.1, up: 0.1 };
    CalculatorInputs {
        pods,
        spec_replicas: replicas,
        status_replicas: replicas,
        tolerances,
        options: &OPTIONS,
        now: T0,
    }
}

/// Returns the desired replicas for this CPU usage in thousandths, and the utilization in percent.
fn by_cpu(
    states: &[PodState],
    usage: &[Option<i64>],
    target_percent: i32,
) -> Result<(i32, i32), String> {
    let pods = pods(states);
    let replicas = i32::try_from(states.len()).unwrap();
    let count =
        calculator(&pods, replicas).by_utilization("cpu", "", samples(usage), target_percent)?;
    Ok((count.replicas, count.utilization.unwrap()))
}

#[test]
fn replicas_follow_the_average_utilization() {
    use PodState::{Failed, Pending, Ready, Terminating, Unready};
    let equal_usage = |value, count| vec![Some(value); count];
    // Scale up, scale down, and stay within the tolerance.
    assert_eq!(by_cpu(&[Ready; 3], &equal_usage(600, 3), 30), Ok((6, 60)));
    assert_eq!(by_cpu(&[Ready; 4], &equal_usage(250, 4), 50), Ok((2, 25)));
    assert_eq!(by_cpu(&[Ready; 3], &equal_usage(549, 3), 50), Ok((3, 54)), "8% over");
    assert_eq!(by_cpu(&[Ready; 3], &equal_usage(560, 3), 50), Ok((4, 56)));
    // A pod without a sample counts as 0 % when scaling up. When scaling down, it counts as 100 % of its
    // request, or as the target if that is more.
    assert_eq!(by_cpu(&[Ready; 3], &[Some(900), Some(900), None], 50), Ok((4, 90)));
    assert_eq!(
        by_cpu(&[Ready; 3], &[Some(520), Some(700), None], 50),
        Ok((3, 61)),
        "the direction would reverse"
    );
    assert_eq!(by_cpu(&[Ready; 4], &[Some(100), Some(100), Some(100), None], 50), Ok((3, 10)));
    assert_eq!(
        by_cpu(&[Ready; 4], &[Some(100), Some(100), Some(100), None], 200),
        Ok((2, 10)),
        "the target is more than 100 %"
    );
    // An unready pod counts as 0 % when scaling up, and is ignored otherwise.
    assert_eq!(by_cpu(&[Ready, Ready, Unready], &equal_usage(900, 3), 30), Ok((6, 90)));
    assert_eq!(by_cpu(&[Ready, Ready, Pending], &[Some(100), Some(100), None], 50), Ok((1, 10)));
    // Terminating and failed pods are ignored.
    assert_eq!(by_cpu(&[Ready, Terminating, Failed], &equal_usage(900, 3), 30), Ok((3, 90)));
    let error = Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    assert_eq!(by_cpu(&[Unready], &equal_usage(900, 1), 30), error);
    let error = Err("no pods returned by selector while calculating replica count".to_owned());
    assert_eq!(by_cpu(&[], &[], 30), error);
}

#[test]
fn replicas_follow_the_average_value() {
    let replicas_and_usage = |states: &[PodState], values: &[Option<i64>], target| {
        let pods = pods(states);
        let replicas = i32::try_from(states.len()).unwrap();
        calculator(&pods, replicas)
            .by_average("", samples(values), target)
            .map(|a| (a.replicas, a.usage))
    };
    assert_eq!(
        replicas_and_usage(
            &[PodState::Ready; 3],
            &[Some(20_000), Some(10_000), Some(30_000)],
            15_000
        ),
        Ok((4, 20_000))
    );
    assert_eq!(
        replicas_and_usage(&[PodState::Ready; 3], &[Some(5_000); 3], 15_000),
        Ok((1, 5_000))
    );
    // Readiness matters only for CPU.
    assert_eq!(
        replicas_and_usage(&[PodState::Unready; 3], &[Some(30_000); 3], 15_000),
        Ok((6, 30_000))
    );
    assert_eq!(
        replicas_and_usage(&[PodState::Ready; 3], &[Some(30_000), Some(30_000), None], 15_000),
        Ok((4, 30_000))
    );
    assert_eq!(
        replicas_and_usage(&[PodState::Ready; 3], &[Some(0), Some(0), None], 15_000),
        Ok((1, 0))
    );
}

#[test]
fn replicas_follow_the_value() {
    let pods = pods(&[PodState::Ready, PodState::Ready, PodState::Unready]);
    let replicas_by_value = |replicas, usage, target| {
        calculator(&pods, replicas).by_value(usage, target).map(|a| a.replicas)
    };
    assert_eq!(replicas_by_value(3, 20_000, 10_000), Ok(4), "2 ready pods at twice the target");
    assert_eq!(replicas_by_value(3, 10_500, 10_000), Ok(3));
    assert_eq!(replicas_by_value(0, 25_000, 10_000), Ok(3), "from zero, pods are not counted");
    assert_eq!(replicas_by_value(0, 0, 10_000), Ok(0));
    assert_eq!(replicas_by_value(3, i64::MAX, 1), Ok(i32::MAX));
    let per_pod = |replicas, usage, target| {
        CalculatorInputs { status_replicas: replicas, ..calculator(&pods, replicas) }
            .by_value_per_pod(usage, target)
    };
    assert_eq!(
        per_pod(3, 60_000, 10_000),
        ReplicaCount { replicas: 6, usage: 20_000, utilization: None }
    );
    assert_eq!(
        per_pod(3, 31_000, 10_000),
        ReplicaCount { replicas: 3, usage: 10_334, utilization: None }
    );
    assert_eq!(per_pod(3, i64::MAX, 1000).usage, i64::MAX);
    let no_pods: Vec<Arc<Pod>> = Vec::new();
    assert!(
        calculator(&no_pods, 1)
            .by_value(20, 10)
            .unwrap_err()
            .starts_with("unable to calculate ready pods: ")
    );
}

#[test]
fn cpu_of_starting_pods_is_ignored() {
    let sample_counts = |started: i64, ready: &str, since: i64, measured: i64| {
        let mut pod = (*pod_in_state(0, PodState::Ready)).clone();
        pod.status.start_time = Some(at(started));
        let mut conditions = pod.status.conditions.to_vec();
        (conditions[0].status, conditions[0].last_transition_time) =
            (ready.into(), Some(at(since)));
        pod.status.conditions = conditions.into();
        let sample = Sample { value: 900, at: at(measured), window: Duration::from_secs(30) };
        let samples = [("p0".into(), sample)].into_iter().collect();
        calculator(&[Arc::new(pod)], 1).by_utilization("cpu", "", samples, 50).is_ok()
    };
    assert!(sample_counts(-600, "True", -500, 0));
    // Within five minutes of its start, one window must have passed since it became ready.
    assert!(!sample_counts(-100, "True", -20, 0));
    assert!(sample_counts(-100, "True", -30, 0));
    assert!(!sample_counts(-100, "False", -90, 0));
    // After that period, an unready pod is ignored if it became unready within 30 s of its start: it has
    // never been ready.
    assert!(!sample_counts(-600, "False", -580, 0));
    assert!(sample_counts(-600, "False", -100, 0), "it has been ready");
}

#[test]
fn utilization_needs_requests() {
    let utilization_of = |spec: Value, container: &str| {
        let spec = object::<Pod>(&json!({"metadata": {}, "spec": spec})).spec;
        let pod = Arc::new(Pod { spec, ..(*pod_in_state(0, PodState::Ready)).clone() });
        calculator(&[pod], 1)
            .by_utilization("cpu", container, samples(&[Some(500)]), 50)
            .map(|a| a.utilization.unwrap())
    };
    let container =
        |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let two_containers = json!({"containers": [container("a", "1"), container("b", "1")]});
    assert_eq!(utilization_of(two_containers.clone(), ""), Ok(25));
    assert_eq!(utilization_of(two_containers.clone(), "b"), Ok(50));
    assert_eq!(
        utilization_of(two_containers, "c"),
        Err("container c not found in Pod p0".to_owned())
    );
    let without_request = json!({"containers": [container("a", "1"), {"name": "b"}]});
    assert_eq!(
        utilization_of(without_request.clone(), ""),
        Err("missing request for cpu in container b of Pod p0".to_owned())
    );
    assert_eq!(utilization_of(without_request, "a"), Ok(50));
    let mut sidecar = json!({"containers": [container("a", "1")], "initContainers": [container("s", "1"), container("i", "9")]});
    sidecar["initContainers"][0]["restartPolicy"] = "Always".into();
    assert_eq!(utilization_of(sidecar, ""), Ok(25));
    let whole = json!({"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "2"}}});
    assert_eq!(utilization_of(whole.clone(), ""), Ok(25));
    assert_eq!(
        utilization_of(whole, "a"),
        Err("missing request for cpu in container a of Pod p0".to_owned())
    );
}

fn autoscaler(spec: &Value, status: &Value) -> HorizontalPodAutoscaler {
    let mut spec = spec.clone();
    spec["scaleTargetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let body = json!({"metadata": {}, "spec": spec, "status": status});
    HorizontalPodAutoscaler { meta: meta("hpa"), ..object(&body) }
}

/// Returns a CPU metric with a target of 50 % of the requests.
fn cpu() -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}})
}

/// Returns the external metric `jobs` with a target of 2 for each pod.
fn queue() -> Value {
    json!({"type": "External", "external": {"metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "2"}}})
}

fn observed(spec: &Value, status: &Value, replicas: i32) -> Observed {
    let scale = Scale {
        name: "web".into(),
        replicas,
        current: replicas,
        selector: "app=web".into(),
        ..Scale::default()
    };
    Observed { autoscaler: Arc::new(autoscaler(spec, status)), scale }
}

/// Runs a pass in which the metrics have these readings. Returns the status, the events, and the new replicas if the
/// target is rescaled.
fn pass(
    observed: &Observed,
    reads: Vec<ReadResult>,
    history: &mut HpaHistory,
    now: Timestamp,
) -> (StatusBuilder, Vec<String>, Option<i32>) {
    let approach = plan::choose_approach(observed, &OPTIONS);
    let pods = pods(&vec![PodState::Ready; usize::try_from(observed.scale.replicas).unwrap()]);
    let each = observed.autoscaler.spec.metrics.iter().zip(reads);
    let propose = |(spec, read): (&MetricSpec, ReadResult)| {
        metric::propose(spec, read, &calculator(&pods, observed.scale.replicas), "ns")
    };
    let proposals = Proposals::Each(match approach {
        Approach::UseMetrics => each.map(propose).collect(),
        Approach::Disabled | Approach::UseBound { .. } => Vec::new(),
    });
    conclude(observed, approach, proposals, history, now)
}

fn conclude(
    observed: &Observed,
    approach: Approach,
    proposals: Proposals,
    history: &mut HpaHistory,
    now: Timestamp,
) -> (StatusBuilder, Vec<String>, Option<i32>) {
    let decision = plan::decide_replicas(observed, approach, proposals, history, &OPTIONS, now);
    let scale_update = decision.rescale_reason.as_ref().map(|_| Ok(()));
    let builder =
        plan::conclude(observed, &decision, scale_update.as_ref(), history, &OPTIONS, now);
    let written = builder.plan(&observed.autoscaler);
    assert!(lint(&written).is_empty(), "{written:?}");
    let events = written.actions.iter().filter_map(|action| match action {
        Action::Event(event) => Some(format!("{}: {}", event.reason, event.message)),
        _ => None,
    });
    let events = events.collect();
    (builder, events, decision.rescale_reason.map(|_| decision.desired))
}

fn usage(values: &[i64]) -> ReadResult {
    Ok(Reading::Samples(samples(&values.iter().map(|value| Some(*value)).collect::<Vec<_>>())))
}

fn status_and_reason(builder: &StatusBuilder, type_: &str) -> (String, String) {
    let found = condition::find(&builder.status.conditions, type_).expect(type_);
    (found.status.to_string(), found.reason.to_string())
}

#[test]
fn bounds_apply_before_metrics() {
    let spec = json!({"minReplicas": 2, "maxReplicas": 4, "metrics": [cpu()]});
    let approach =
        |replicas| plan::choose_approach(&observed(&spec, &json!({}), replicas), &OPTIONS);
    let reason = "Current number of replicas above Spec.MaxReplicas";
    assert_eq!(approach(5), Approach::UseBound { replicas: 4, reason });
    let reason = "Current number of replicas below Spec.MinReplicas";
    assert_eq!(approach(1), Approach::UseBound { replicas: 2, reason });
    assert_eq!(
        (approach(0), approach(2), approach(4)),
        (Approach::Disabled, Approach::UseMetrics, Approach::UseMetrics)
    );
    let observed = observed(&spec, &json!({}), 9);
    let (builder, events, to) = pass(&observed, Vec::new(), &mut HpaHistory::default(), T0);
    assert_eq!(to, Some(4));
    assert_eq!(
        events,
        [
            "SuccessfulRescale: New size: 4; reason: Current number of replicas above Spec.MaxReplicas"
        ]
    );
    assert_eq!((builder.status.current_replicas, builder.status.desired_replicas), (9, 4));
    assert_eq!(
        status_and_reason(&builder, "AbleToScale"),
        ("True".into(), "SucceededRescale".into())
    );
    assert_eq!(
        status_and_reason(&builder, "ScaledToZero"),
        ("False".into(), "NotScaledToZero".into())
    );
    assert_eq!(builder.status.last_scale_time, Some(T0));
}

#[test]
fn manual_scale_to_zero_disables_scaling() {
    let spec = json!({"maxReplicas": 4, "metrics": [cpu()]});
    let observed = observed(&spec, &json!({"desiredReplicas": 3}), 0);
    let (builder, events, to) = pass(&observed, Vec::new(), &mut HpaHistory::default(), T0);
    assert_eq!((to, events.len()), (None, 0));
    assert_eq!(
        status_and_reason(&builder, "ScalingActive"),
        ("False".into(), "ScalingDisabled".into())
    );
    assert_eq!(builder.status.desired_replicas, 0);
}

#[test]
fn autoscaler_scales_to_zero_and_back() {
    let spec = json!({"minReplicas": 0, "maxReplicas": 9, "metrics": [queue()]});
    let mut history = HpaHistory::default();
    let jobs = |n: i64| vec![Ok(Reading::Values(vec![n * 1000]))];
    let busy = observed(&spec, &json!({}), 1);
    history.record_initial_recommendation(1, at(-600));
    let (builder, _, to) = pass(&busy, jobs(0), &mut history, T0);
    assert_eq!(to, Some(0));
    assert_eq!(status_and_reason(&builder, "ScaledToZero"), ("True".into(), "ScaledToZero".into()));
    let status = json!({"conditions": [{"type": "ScaledToZero", "status": "True"}]});
    let idle = observed(&spec, &status, 0);
    assert_eq!(pass(&idle, jobs(0), &mut history.clone(), at(15)).2, None);
    let (builder, events, to) = pass(&idle, jobs(5), &mut history.clone(), at(30));
    assert_eq!(to, Some(3));
    assert_eq!(
        events,
        ["SuccessfulRescale: New size: 3; reason: external metric jobs(nil) above target"]
    );
    assert_eq!(
        status_and_reason(&builder, "ScaledToZero"),
        ("False".into(), "NotScaledToZero".into())
    );
    // Without the gate, a target at zero stays at zero.
    let off = Options { scale_to_zero: false, ..OPTIONS };
    assert_eq!(plan::choose_approach(&idle, &off), Approach::Disabled);
    // After `minReplicas` is raised, a target at zero is evaluated again.
    let raised = json!({"minReplicas": 2, "maxReplicas": 9, "metrics": [cpu()]});
    let raised = observed(&raised, &status, 0);
    assert_eq!(plan::choose_approach(&raised, &OPTIONS), Approach::UseMetrics);
}

#[test]
fn highest_proposal_wins() {
    let spec = json!({"maxReplicas": 9, "metrics": [cpu(), queue()]});
    let observed = observed(&spec, &json!({}), 3);
    let jobs = |n: i64| Ok(Reading::Values(vec![n * 1000]));
    let (builder, events, to) =
        pass(&observed, vec![usage(&[500; 3]), jobs(10)], &mut HpaHistory::default(), T0);
    assert_eq!(to, Some(5));
    assert_eq!(
        events,
        ["SuccessfulRescale: New size: 5; reason: external metric jobs(nil) above target"]
    );
    assert_eq!(
        status_and_reason(&builder, "ScalingActive"),
        ("True".into(), "ValidMetricFound".into())
    );
    assert_eq!(builder.status.current_metrics.len(), 2);
    assert_eq!(
        builder.status.current_metrics[1]
            .external
            .as_ref()
            .unwrap()
            .current
            .average_value
            .unwrap()
            .to_string(),
        "3334m"
    );
    // If one metric cannot be read, the others may scale up, but not down.
    let failed_read = || Err("no answer".to_owned());
    let (builder, events, to) =
        pass(&observed, vec![failed_read(), jobs(10)], &mut HpaHistory::default(), T0);
    assert_eq!((to, status_and_reason(&builder, "ScalingActive").0.as_str()), (Some(5), "True"));
    assert_eq!(
        events[0],
        "FailedGetResourceMetric: failed to get cpu utilization: unable to get metrics for resource cpu: no answer"
    );
    let (builder, events, to) =
        pass(&observed, vec![failed_read(), jobs(1)], &mut HpaHistory::default(), T0);
    assert_eq!(
        (to, status_and_reason(&builder, "ScalingActive")),
        (None, ("False".into(), "FailedGetResourceMetric".into()))
    );
    let message = "FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 2), first error is: failed to get cpu resource metric value: failed to get cpu utilization: unable to get metrics for resource cpu: no answer";
    assert_eq!(events[1], message);
    assert_eq!(&*builder.status.current_metrics[0].type_, "", "empty, as upstream writes it");
}

#[test]
fn each_metric_source_has_its_own_failure_event() {
    let first_event = |metric: Value| {
        let spec = json!({"maxReplicas": 9, "metrics": [metric]});
        let observed = observed(&spec, &json!({}), 2);
        pass(&observed, vec![Err("E".to_owned())], &mut HpaHistory::default(), T0).1[0].clone()
    };
    let average = json!({"type": "AverageValue", "averageValue": "1"});
    let value = json!({"type": "Value", "value": "1"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
    assert_eq!(
        first_event(
            json!({"type": "ContainerResource", "containerResource": {"name": "memory", "container": "app", "target": average}})
        ),
        "FailedGetContainerResourceMetric: failed to get memory usage: unable to get metrics for resource memory: E"
    );
    assert_eq!(
        first_event(
            json!({"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": average}})
        ),
        "FailedGetPodsMetric: unable to get metric qps: E"
    );
    assert_eq!(
        first_event(
            json!({"type": "Object", "object": {"metric": {"name": "qps"}, "describedObject": service, "target": value}})
        ),
        "FailedGetObjectMetric: unable to get metric qps on Service ns/s: E"
    );
    assert_eq!(
        first_event(queue()),
        "FailedGetExternalMetric: unable to get external metric ns/jobs/nil: E"
    );
    assert_eq!(
        first_event(json!({"type": "Dice"})),
        "InvalidMetricSourceType: unknown metric source type \"Dice\""
    );
}

#[test]
fn memory_status_has_binary_units() {
    let metric = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "64Mi"}}});
    let spec = json!({"maxReplicas": 9, "metrics": [metric]});
    let observed = observed(&spec, &json!({}), 2);
    let bytes = 64 * 1024 * 1024 * 1000;
    let (builder, ..) = pass(&observed, vec![usage(&[bytes; 2])], &mut HpaHistory::default(), T0);
    let current = &builder.status.current_metrics[0].resource.as_ref().unwrap().current;
    assert_eq!(current.average_value.unwrap().to_string(), "64Mi");
    assert_eq!(current.average_utilization, None);
}

#[test]
fn tolerance_of_behavior_overrides_the_default() {
    let behavior = json!({"scaleUp": {"tolerance": "500m"}, "scaleDown": {}});
    let spec = json!({"maxReplicas": 9, "metrics": [cpu()], "behavior": behavior});
    let behavior = autoscaler(&spec, &json!({})).spec.behavior;
    assert_eq!(plan::tolerances(behavior.as_deref(), &OPTIONS), Tolerances { down: 0.1, up: 0.5 });
    let off = Options { configurable_tolerance: false, ..OPTIONS };
    assert_eq!(plan::tolerances(behavior.as_deref(), &off), Tolerances { down: 0.1, up: 0.1 });
}

#[test]
fn failed_rescale_is_reported() {
    let spec = json!({"maxReplicas": 4, "metrics": [cpu()]});
    let observed = observed(&spec, &json!({"desiredReplicas": 7}), 9);
    let mut history = HpaHistory::default();
    let decision = plan::decide_replicas(
        &observed,
        plan::choose_approach(&observed, &OPTIONS),
        Proposals::Each(Vec::new()),
        &mut history,
        &OPTIONS,
        T0,
    );
    let builder = plan::conclude(
        &observed,
        &decision,
        Some(&Err("no".to_owned())),
        &mut history,
        &OPTIONS,
        T0,
    );
    assert_eq!(
        status_and_reason(&builder, "AbleToScale"),
        ("False".into(), "FailedUpdateScale".into())
    );
    assert_eq!((builder.status.desired_replicas, builder.status.last_scale_time), (7, None));
    let Action::Event(event) = &builder.plan(&observed.autoscaler).actions[0] else {
        panic!("the event is first")
    };
    assert_eq!(
        event.message,
        "New size: 4; reason: Current number of replicas above Spec.MaxReplicas; error: no"
    );
}

#[test]
fn missing_scale_changes_only_able_to_scale() {
    let autoscaler = autoscaler(&json!({"maxReplicas": 4}), &json!({"desiredReplicas": 7}));
    let builder = plan::status_without_scale(&autoscaler, "deployments.apps \"web\" not found", T0);
    assert_eq!(
        status_and_reason(&builder, "AbleToScale"),
        ("False".into(), "FailedGetScale".into())
    );
    assert_eq!((builder.status.desired_replicas, builder.status.observed_generation), (7, None));
    assert_eq!(builder.plan(&autoscaler).actions.len(), 2);
}

#[test]
fn ambiguous_selector_is_reported() {
    let (mut selectors, pods) = (Selectors::default(), pods(&[PodState::Ready]));
    let web = Selector::from_map(&label("app", "web"));
    let (a, b, far) = (Key::new("ns", "a"), Key::new("ns", "b"), Key::new("other", "a"));
    assert!(selectors::check_unambiguous(&selectors, &a, "app=web", &web, &pods).is_ok());
    selectors.record(&a, &web);
    selectors.record(&far, &web);
    assert!(selectors::check_unambiguous(&selectors, &far, "app=web", &web, &pods).is_ok());
    let Err(SelectorError { event_reason, error, .. }) =
        selectors::check_unambiguous(&selectors, &b, "app=web", &web, &pods)
    else {
        panic!("both select the pod")
    };
    assert_eq!(
        (event_reason, &*error),
        (
            "AmbiguousSelector",
            "pods by selector app=web are controlled by more than one HPA (e.g. [ns/a ns/b])"
        )
    );
    assert!(
        selectors::check_unambiguous(&selectors, &b, "app=web", &web, &Vec::new()).is_ok(),
        "no pod is selected twice"
    );
    selectors.record(&b, &web);
    assert!(selectors::check_unambiguous(&selectors, &a, "app=web", &web, &pods).is_err());
    selectors.forget(&a);
    assert!(selectors::check_unambiguous(&selectors, &b, "app=web", &web, &pods).is_ok());
}

#[test]
fn missing_or_invalid_selector_is_reported() {
    let event_and_reason = |text: &str| match selectors::parse(text) {
        Err(error) => (error.event_reason, error.condition_reason),
        Ok(selector) => panic!("{selector:?}"),
    };
    assert_eq!(event_and_reason(""), ("SelectorRequired", "InvalidSelector"));
    assert_eq!(event_and_reason("a in"), ("InvalidSelector", "InvalidSelector"));
    let spec = json!({"maxReplicas": 4, "metrics": [cpu()]});
    let observed = observed(&spec, &json!({}), 2);
    let unselected = Proposals::Unselected(selectors::parse("").unwrap_err());
    let (builder, events, to) =
        conclude(&observed, Approach::UseMetrics, unselected, &mut HpaHistory::default(), T0);
    assert_eq!(
        (to, status_and_reason(&builder, "ScalingActive")),
        (None, ("False".into(), "InvalidSelector".into()))
    );
    assert_eq!(
        events,
        [
            "SelectorRequired: selector is required",
            "FailedComputeMetricsReplicas: selector is required"
        ]
    );
}

/// Returns the autoscaler and its target after a pass.
fn next_observed(observed: &Observed, builder: &StatusBuilder, to: Option<i32>) -> Observed {
    let autoscaler = HorizontalPodAutoscaler {
        status: builder.status.clone(),
        ..(*observed.autoscaler).clone()
    };
    let replicas = to.unwrap_or(observed.scale.replicas);
    let scale = Scale { replicas, current: replicas, ..observed.scale.clone() };
    Observed { autoscaler: Arc::new(autoscaler), scale }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Under a constant load the replicas converge within the bounds, and further passes write nothing.
    #[test]
    fn constant_load_converges(load in 1i64..20_000, start in 1i32..12, behavior: bool) {
        let rules = json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}], "stabilizationWindowSeconds": 0});
        let mut spec = json!({"minReplicas": 1, "maxReplicas": 12, "metrics": [cpu()]});
        if behavior {
            spec["behavior"] = json!({"scaleUp": rules, "scaleDown": rules});
        }
        let (mut history, mut observed, mut now) = (HpaHistory::default(), observed(&spec, &json!({}), start), T0);
        for _ in 0..60 {
            let each = load / i64::from(observed.scale.replicas);
            let reads = vec![usage(&vec![each; usize::try_from(observed.scale.replicas).unwrap()])];
            let (builder, _, to) = pass(&observed, reads, &mut history, now);
            observed = next_observed(&observed, &builder, to);
            now += SignedDuration::from_secs(15);
        }
        let replicas = i64::from(observed.scale.replicas);
        let each = load / replicas;
        prop_assert!((1..=12).contains(&replicas));
        prop_assert!(each <= 550 + 10 || replicas == 12, "{each} each of {replicas}");
        let reads = vec![usage(&vec![each; usize::try_from(replicas).unwrap()])];
        let (builder, events, to) = pass(&observed, reads, &mut history, now);
        prop_assert_eq!((to, events.len()), (None, 0));
        prop_assert!(builder.plan(&observed.autoscaler).is_nothing());
    }
}

#[test]
fn resource_metric_proposes_replicas_by_utilization() {
    let spec: MetricSpec =
        autoscaler(&json!({"metrics": [cpu()]}), &json!({})).spec.metrics[0].clone();
    let pods = pods(&[PodState::Ready; 2]);
    let Ok(Proposal { replicas, name, status }) =
        metric::propose(&spec, usage(&[1000; 2]), &calculator(&pods, 2), "ns")
    else {
        panic!("readings are complete")
    };
    assert_eq!((replicas, &*name), (4, "cpu resource utilization (percentage of request)"));
    let current = &status.resource.as_ref().unwrap().current;
    assert_eq!(
        (current.average_utilization, current.average_value.unwrap().to_string()),
        (Some(100), "1".to_owned())
    );
}
