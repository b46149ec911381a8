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

/// Upstream: `printDeployment`.
fn deployment(o: &PrintedObject<'_>) -> Cells {
    let [names, images] = containers(get(o, "spec.template.spec"));
    vec![
        json!(name(o)),
        json!(format!("{}/{}", count(o, "status.readyReplicas"), count(o, "spec.replicas"))),
        json!(count(o, "status.updatedReplicas")),
        json!(count(o, "status.availableReplicas")),
        json!(age(o)),
        json!(names),
        json!(images),
        json!(crate::scale::format_selector(get(o, "spec.selector"))),
    ]
}

/// Upstream: `printReplicaSet`.
fn replica_set(o: &PrintedObject<'_>) -> Cells {
    replicas(o, &selector_text(o, "spec.selector"))
}

/// Returns the cells of a ReplicaSet or ReplicationController.
///
/// Upstream: `printReplicaSet`, `printReplicationController`.
pub(super) fn replicas(o: &PrintedObject<'_>, selector: &str) -> Cells {
    let [names, images] = containers(get(o, "spec.template.spec"));
    vec![
        json!(name(o)),
        json!(count(o, "spec.replicas")),
        json!(count(o, "status.replicas")),
        json!(count(o, "status.readyReplicas")),
        json!(age(o)),
        json!(names),
        json!(images),
        json!(selector),
    ]
}

/// Upstream: `printStatefulSet`.
fn stateful_set(o: &PrintedObject<'_>) -> Cells {
    let [names, images] = containers(get(o, "spec.template.spec"));
    let ready = format!("{}/{}", count(o, "status.readyReplicas"), count(o, "spec.replicas"));
    vec![json!(name(o)), json!(ready), json!(age(o)), json!(names), json!(images)]
}

/// Upstream: `printDaemonSet`.
fn daemon_set(o: &PrintedObject<'_>) -> Cells {
    let [names, images] = containers(get(o, "spec.template.spec"));
    vec![
        json!(name(o)),
        json!(count(o, "status.desiredNumberScheduled")),
        json!(count(o, "status.currentNumberScheduled")),
        json!(count(o, "status.numberReady")),
        json!(count(o, "status.updatedNumberScheduled")),
        json!(count(o, "status.numberAvailable")),
        json!(labels(o, "spec.template.spec.nodeSelector")),
        json!(age(o)),
        json!(names),
        json!(images),
        json!(selector_text(o, "spec.selector")),
    ]
}

/// Upstream: `printControllerRevision`.
fn revision(o: &PrintedObject<'_>) -> Cells {
    let owner = list(o, "metadata.ownerReferences").iter().find(|owner| flag(owner, "controller"));
    let controller = owner.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let group = text(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
            let kind = text(owner, "kind");
            let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
            format!("{}/{}", kind.to_lowercase(), text(owner, "name"))
        },
    );
    vec![json!(name(o)), json!(controller), json!(count(o, "revision")), json!(age(o))]
}

/// Upstream: `printJob`.
fn job(o: &PrintedObject<'_>) -> Cells {
    let succeeded = count(o, "status.succeeded");
    let parallelism = count(o, "spec.parallelism");
    let completions = match int(o, "spec.completions") {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let end = text(o, "status.completionTime").parse().unwrap_or(o.now);
    let duration = seconds_since(text(o, "status.startTime"), end).map_or_else(String::new, human);
    let [names, images] = containers(get(o, "spec.template.spec"));
    vec![
        json!(name(o)),
        json!(job_status(o)),
        json!(completions),
        json!(duration),
        json!(age(o)),
        json!(names),
        json!(images),
        json!(selector_text(o, "spec.selector")),
    ]
}

fn job_status(o: &Value) -> &'static str {
    let has = |kind: &str| {
        list(o, "status.conditions")
            .iter()
            .any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
    };
    match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if get(o, "metadata.deletionTimestamp").is_some() => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

/// Upstream: `printCronJob`.
fn cron_job(o: &PrintedObject<'_>) -> Cells {
    let last = if get(o, "status.lastScheduleTime").is_some() {
        since(o, "status.lastScheduleTime")
    } else {
        NONE.to_owned()
    };
    let suspend = match get(o, "spec.suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let [names, images] = containers(get(o, "spec.jobTemplate.spec.template.spec"));
    vec![
        json!(name(o)),
        json!(text(o, "spec.schedule")),
        json!(text_or(o, "spec.timeZone", NONE)),
        json!(suspend),
        json!(list(o, "status.active").len()),
        json!(last),
        json!(age(o)),
        json!(names),
        json!(images),
        json!(selector_text(o, "spec.jobTemplate.spec.selector")),
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

/// Upstream: `printHorizontalPodAutoscaler`.
fn autoscaler(o: &PrintedObject<'_>) -> Cells {
    let statuses = list(o, "status.currentMetrics");
    let metrics: Vec<String> = list(o, "spec.metrics")
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
        json!(name(o)),
        json!(format!(
            "{}/{}",
            text(o, "spec.scaleTargetRef.kind"),
            text(o, "spec.scaleTargetRef.name")
        )),
        json!(shown),
        json!(scalar_text(get(o, "spec.minReplicas"), "<unset>")),
        json!(count(o, "spec.maxReplicas")),
        json!(count(o, "status.currentReplicas")),
        json!(age(o)),
    ]
}
