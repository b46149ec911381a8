//! Printers of the API groups apps, batch and autoscaling.

use super::cells::{
    Cells, NONE, UNKNOWN, age, containers, count, labels, name, scalar_text, seconds_since,
    selector_text, since, text_or,
};
use super::duration::human;
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{flag, get, int, list, text};
use serde_json::{Value, json};

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "Deployment" => deployment,
        "ReplicaSet" => replica_set,
        "StatefulSet" => stateful_set,
        "DaemonSet" => daemon_set,
        "ControllerRevision" => revision,
        "Job" => job,
        "CronJob" => cron_job,
        "HorizontalPodAutoscaler" => autoscaler,
        _ => return None,
    })
}

/// Returns the cells of a Deployment: replicas by state, containers, images, and selector.
///
/// Upstream: `printDeployment`.
fn deployment(printed: &PrintedObject<'_>) -> Cells {
    let [names, images] = containers(get(printed, "spec.template.spec"));
    vec![
        json!(name(printed)),
        json!(format!(
            "{}/{}",
            count(printed, "status.readyReplicas"),
            count(printed, "spec.replicas")
        )),
        json!(count(printed, "status.updatedReplicas")),
        json!(count(printed, "status.availableReplicas")),
        json!(age(printed)),
        json!(names),
        json!(images),
        json!(crate::scale::format_selector(get(printed, "spec.selector"))),
    ]
}

/// Returns the cells of a ReplicaSet: replicas by state, containers, images, and selector.
///
/// Upstream: `printReplicaSet`.
fn replica_set(printed: &PrintedObject<'_>) -> Cells {
    replicas(printed, &selector_text(printed, "spec.selector"))
}

/// Returns the cells of a ReplicaSet or ReplicationController.
///
/// Upstream: `printReplicaSet`, `printReplicationController`.
pub(super) fn replicas(printed: &PrintedObject<'_>, selector: &str) -> Cells {
    let [names, images] = containers(get(printed, "spec.template.spec"));
    vec![
        json!(name(printed)),
        json!(count(printed, "spec.replicas")),
        json!(count(printed, "status.replicas")),
        json!(count(printed, "status.readyReplicas")),
        json!(age(printed)),
        json!(names),
        json!(images),
        json!(selector),
    ]
}

/// Returns the cells of a StatefulSet: ready and desired replicas, age, containers, and images.
///
/// Upstream: `printStatefulSet`.
fn stateful_set(printed: &PrintedObject<'_>) -> Cells {
    let [names, images] = containers(get(printed, "spec.template.spec"));
    let ready =
        format!("{}/{}", count(printed, "status.readyReplicas"), count(printed, "spec.replicas"));
    vec![json!(name(printed)), json!(ready), json!(age(printed)), json!(names), json!(images)]
}

/// Returns the cells of a DaemonSet: pods by state, node selector, containers, images, and selector.
///
/// Upstream: `printDaemonSet`.
fn daemon_set(printed: &PrintedObject<'_>) -> Cells {
    let [names, images] = containers(get(printed, "spec.template.spec"));
    vec![
        json!(name(printed)),
        json!(count(printed, "status.desiredNumberScheduled")),
        json!(count(printed, "status.currentNumberScheduled")),
        json!(count(printed, "status.numberReady")),
        json!(count(printed, "status.updatedNumberScheduled")),
        json!(count(printed, "status.numberAvailable")),
        json!(labels(printed, "spec.template.spec.nodeSelector")),
        json!(age(printed)),
        json!(names),
        json!(images),
        json!(selector_text(printed, "spec.selector")),
    ]
}

/// Returns the cells of a ControllerRevision, with its controller as `KIND.GROUP/NAME`.
///
/// Upstream: `printControllerRevision`.
fn revision(printed: &PrintedObject<'_>) -> Cells {
    let owner =
        list(printed, "metadata.ownerReferences").iter().find(|owner| flag(owner, "controller"));
    let controller = owner.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let group = text(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
            let kind = text(owner, "kind");
            let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
            format!("{}/{}", kind.to_lowercase(), text(owner, "name"))
        },
    );
    vec![
        json!(name(printed)),
        json!(controller),
        json!(count(printed, "revision")),
        json!(age(printed)),
    ]
}

/// Returns the cells of a Job: status, completions, duration, containers, images, and selector.
///
/// Upstream: `printJob`.
fn job(printed: &PrintedObject<'_>) -> Cells {
    let succeeded = count(printed, "status.succeeded");
    let parallelism = count(printed, "spec.parallelism");
    let completions = match int(printed, "spec.completions") {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let end = text(printed, "status.completionTime").parse().unwrap_or(printed.now);
    let duration =
        seconds_since(text(printed, "status.startTime"), end).map_or_else(String::new, human);
    let [names, images] = containers(get(printed, "spec.template.spec"));
    vec![
        json!(name(printed)),
        json!(job_status(printed)),
        json!(completions),
        json!(duration),
        json!(age(printed)),
        json!(names),
        json!(images),
        json!(selector_text(printed, "spec.selector")),
    ]
}

fn job_status(printed: &Value) -> &'static str {
    let has = |kind: &str| {
        list(printed, "status.conditions")
            .iter()
            .any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
    };
    match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if get(printed, "metadata.deletionTimestamp").is_some() => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

/// Returns the cells of a CronJob: schedule, time zone, suspension, active Jobs, and the last schedule time.
///
/// Upstream: `printCronJob`.
fn cron_job(printed: &PrintedObject<'_>) -> Cells {
    let last = if get(printed, "status.lastScheduleTime").is_some() {
        since(printed, "status.lastScheduleTime")
    } else {
        NONE.to_owned()
    };
    let suspend = match get(printed, "spec.suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let [names, images] = containers(get(printed, "spec.jobTemplate.spec.template.spec"));
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.schedule")),
        json!(text_or(printed, "spec.timeZone", NONE)),
        json!(suspend),
        json!(list(printed, "status.active").len()),
        json!(last),
        json!(age(printed)),
        json!(names),
        json!(images),
        json!(selector_text(printed, "spec.jobTemplate.spec.selector")),
    ]
}

/// Formats a metric as its current and its target value.
///
/// Upstream: `formatHPAMetrics`.
fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (field, is_resource) = match text(spec, "type") {
        "External" => ("external", false),
        "Object" => ("object", false),
        "Pods" => ("pods", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let target = |kind: &str| get(spec, &format!("{field}.target.{kind}"));
    let current =
        |kind: &str| status.and_then(|status| get(status, &format!("{field}.current.{kind}")));
    let average = target("averageValue");
    let pair = match (is_resource, average) {
        (true, None) => {
            let format_percent =
                |value: Option<&Value>, absent: &str| match value.and_then(Value::as_i64) {
                    Some(percent) => format!("{percent}%"),
                    None => absent.to_owned(),
                };
            let current = format_percent(current("averageUtilization"), UNKNOWN);
            format!("{current}/{}", format_percent(target("averageUtilization"), "<auto>"))
        }
        (_, Some(average)) => {
            let suffix = if field == "external" || field == "object" { " (avg)" } else { "" };
            format!(
                "{}/{}{suffix}",
                scalar_text(current("averageValue"), UNKNOWN),
                scalar_text(Some(average), "")
            )
        }
        (false, None) => {
            format!(
                "{}/{}",
                scalar_text(current("value"), UNKNOWN),
                scalar_text(target("value"), "")
            )
        }
    };
    if is_resource { format!("{}: {pair}", text(spec, &format!("{field}.name"))) } else { pair }
}

/// Returns the cells of a HorizontalPodAutoscaler: target, the first two metrics, and bounds and number of replicas.
///
/// Upstream: `printHorizontalPodAutoscaler`.
fn autoscaler(printed: &PrintedObject<'_>) -> Cells {
    let statuses = list(printed, "status.currentMetrics");
    let metrics: Vec<String> = list(printed, "spec.metrics")
        .iter()
        .enumerate()
        .map(|(index, spec)| metric(spec, statuses.get(index)))
        .collect();
    let shown = match metrics.len() {
        0 => NONE.to_owned(),
        1 | 2 => metrics.join(", "),
        more => format!("{} + {} more...", metrics[..2].join(", "), more - 2),
    };
    vec![
        json!(name(printed)),
        json!(format!(
            "{}/{}",
            text(printed, "spec.scaleTargetRef.kind"),
            text(printed, "spec.scaleTargetRef.name")
        )),
        json!(shown),
        json!(scalar_text(get(printed, "spec.minReplicas"), "<unset>")),
        json!(count(printed, "spec.maxReplicas")),
        json!(count(printed, "status.currentReplicas")),
        json!(age(printed)),
    ]
}
