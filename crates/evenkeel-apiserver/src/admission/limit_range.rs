//! Admission plug-in LimitRanger: refuses pods and claims whose resources violate a LimitRange of their namespace, and
//! sets the defaults of LimitRanges on containers.

use super::objects::{decoded, namespaced};
use crate::api::Context;
use evenkeel_api::map::Map;
use evenkeel_api::quantity::Quantity;
use evenkeel_api::views::{
    LimitRange, LimitRangeItem, PersistentVolumeClaim, Pod, ResourceRequirements,
};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{self, Object, list, object, object_mut, set, text};
use evenkeel_component_helpers::resource::{Amounts, aggregate, amounts};
use serde_json::Value;

/// Annotation of a pod that lists the defaults which the plug-in has set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Largest number of units whose thousandths fit an `i64`.
const MAX_UNITS_IN_MILLIS: i64 = i64::MAX / 1000;

/// Sets the defaults of the namespace's LimitRanges on a pod's containers.
pub(super) fn set_defaults(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    for range in ranges(cx)? {
        let mut applied_defaults = Vec::new();
        for (path, container_type) in
            [("spec.containers", "container"), ("spec.initContainers", "init container")]
        {
            let mut containers = list(pod, path).to_vec();
            let applied_before = applied_defaults.len();
            for container in &mut containers {
                set_container_defaults(container, container_type, &range, &mut applied_defaults);
            }
            if applied_defaults.len() > applied_before {
                set(pod, path, containers);
            }
        }
        if !applied_defaults.is_empty()
            && let Some(annotations) = object_mut(pod, "metadata.annotations")
        {
            let text = format!("LimitRanger plugin set: {}", applied_defaults.join("; "));
            annotations.insert(ANNOTATION.to_owned(), Value::from(text));
        }
    }
    Ok(())
}

/// Sets the defaults of a LimitRange on a container. Appends a message for each default to `applied_defaults`, such as
/// `cpu request for container c`.
fn set_container_defaults(
    container: &mut Value,
    container_type: &str,
    range: &LimitRange,
    applied_defaults: &mut Vec<String>,
) {
    let name = text(container, "name").to_owned();
    let container_items = || range.spec.limits.iter().filter(|item| &*item.type_ == "Container");
    let mut set_missing = |path: &str,
                           defaults: fn(&LimitRangeItem) -> &Map<Quantity>,
                           noun: &str| {
        let mut missing = Object::new();
        for (resource, amount) in container_items().flat_map(|item| defaults(item).iter()) {
            missing.insert(resource.to_owned(), Value::from(amount.to_string()));
        }
        missing.retain(|resource, _| {
            object(container, path).is_none_or(|amounts| !amounts.contains_key(resource))
        });
        if missing.is_empty() {
            return;
        }
        let mut names: Vec<&str> = missing.keys().map(String::as_str).collect();
        names.sort_unstable();
        applied_defaults.push(format!("{} {noun} for {container_type} {name}", names.join(", ")));
        if let Some(amounts) = object_mut(container, path) {
            amounts.extend(missing);
        }
    };
    set_missing("resources.requests", |item| &item.default_request, "request");
    set_missing("resources.limits", |item| &item.default, "limit");
}

/// Refuses pods and claims that violate the namespace's LimitRanges.
pub(super) fn check(cx: &Context<'_>, new: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    let is_checked = match (cx.resource.kind(), cx.subresource) {
        ("Pod", "") => old.is_none(),
        ("Pod", "resize") | ("PersistentVolumeClaim", "") => true,
        _ => false,
    };
    let is_terminating =
        old.is_some_and(|old| value::get(old, "metadata.deletionTimestamp").is_some());
    if !is_checked || is_terminating {
        return Ok(());
    }
    for range in ranges(cx)? {
        let violations = if cx.resource.kind() == "Pod" {
            let pod: Pod = decoded(new)?;
            pod_violations(&range, &pod)
        } else {
            let claim: PersistentVolumeClaim = decoded(new)?;
            claim_violations(&range, &claim)
        };
        if let Some(message) = aggregate_message(violations) {
            return Err(StatusError::forbidden(&cx.resource.name, cx.name, message));
        }
    }
    Ok(())
}

/// Returns the LimitRanges of the request's namespace.
fn ranges(cx: &Context<'_>) -> Result<Vec<LimitRange>, StatusError> {
    Ok(namespaced(cx, "/limitranges")?.into_iter().map(|(_, range)| range).collect())
}

/// Joins the distinct violations into one message; `None` without any.
///
/// Upstream: `utilerrors.NewAggregate`.
fn aggregate_message(mut violations: Vec<String>) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    violations.retain(|text| seen.insert(text.clone()));
    match violations.len() {
        0 => None,
        1 => violations.pop(),
        _ => Some(format!("[{}]", violations.join(", "))),
    }
}

/// Returns messages about the limits that a claim violates.
fn claim_violations(range: &LimitRange, claim: &PersistentVolumeClaim) -> Vec<String> {
    let requests = amounts(&claim.spec.resources.requests);
    let mut violations = Vec::new();
    for item in range.spec.limits.iter().filter(|item| &*item.type_ == "PersistentVolumeClaim") {
        let usage = Usage { limit_type: &item.type_, requests: &requests, limits: &[] };
        violations.extend(item.min.iter().filter_map(|(name, min)| usage.below_min(name, *min)));
        violations
            .extend(item.max.iter().filter_map(|(name, max)| usage.request_above_max(name, *max)));
    }
    violations
}

/// Returns messages about the limits that a pod violates as a whole or with one of its containers.
fn pod_violations(range: &LimitRange, pod: &Pod) -> Vec<String> {
    let mut violations = Vec::new();
    for item in &range.spec.limits {
        match &*item.type_ {
            "Container" => {
                for container in pod.spec.containers.iter().chain(&*pod.spec.init_containers) {
                    let requests = amounts(&container.resources.requests);
                    let limits = amounts(&container.resources.limits);
                    add_violations(item, &requests, &limits, &mut violations);
                }
            }
            "Pod" => {
                let requests = pod_amounts(pod, |resources| &resources.requests);
                let limits = pod_amounts(pod, |resources| &resources.limits);
                add_violations(item, &requests, &limits, &mut violations);
            }
            _ => {}
        }
    }
    violations
}

/// Returns the requests or limits of a whole pod, as `field` selects. Amounts of CPU and memory in the pod's own
/// `resources` replace the sums over its containers.
fn pod_amounts(
    pod: &Pod,
    field: fn(&ResourceRequirements) -> &Map<Quantity>,
) -> Vec<(&str, Quantity)> {
    let mut total = aggregate(pod, |container, _| amounts(field(&container.resources)));
    let pod_level = pod.spec.resources.iter().flat_map(|resources| field(resources).iter());
    for (name, amount) in pod_level.filter(|(name, _)| matches!(*name, "cpu" | "memory")) {
        total.retain(|(summed, _)| *summed != name);
        total.push((name, *amount));
    }
    total
}

/// Appends messages about the limits of `item` that the amounts violate.
fn add_violations(
    item: &LimitRangeItem,
    requests: &Amounts<'_>,
    limits: &Amounts<'_>,
    violations: &mut Vec<String>,
) {
    let usage = Usage { limit_type: &item.type_, requests, limits };
    violations.extend(item.min.iter().filter_map(|(name, min)| usage.below_min(name, *min)));
    violations.extend(item.max.iter().filter_map(|(name, max)| usage.above_max(name, *max)));
    let ratios = item.max_limit_request_ratio.iter();
    violations.extend(ratios.filter_map(|(name, max)| usage.above_max_ratio(name, *max)));
}

/// Requests and limits of a container, a pod or a claim.
struct Usage<'a> {
    /// Type of the limit: `Container`, `Pod` or `PersistentVolumeClaim`.
    limit_type: &'a str,
    requests: &'a [(&'a str, Quantity)],
    limits: &'a [(&'a str, Quantity)],
}

impl Usage<'_> {
    /// Returns the amount of a resource.
    fn find(amounts: &[(&str, Quantity)], name: &str) -> Option<Quantity> {
        amounts.iter().find(|(resource, _)| *resource == name).map(|(_, amount)| *amount)
    }

    fn request(&self, name: &str) -> Option<Quantity> {
        Self::find(self.requests, name)
    }

    fn limit(&self, name: &str) -> Option<Quantity> {
        Self::find(self.limits, name)
    }

    /// Returns request, limit and bound as comparable numbers: in thousandths if all three fit an `i64`, else in units.
    ///
    /// Upstream: `requestLimitEnforcedValues`.
    fn comparable(&self, name: &str, bound: Quantity) -> [i64; 3] {
        let quantities =
            [self.request(name).unwrap_or_default(), self.limit(name).unwrap_or_default(), bound];
        let fits = quantities.iter().all(|quantity| quantity.value() <= MAX_UNITS_IN_MILLIS);
        quantities.map(|quantity| if fits { quantity.milli_value() } else { quantity.value() })
    }

    /// Returns a message if the request or the limit is below the minimum, or the request is absent.
    fn below_min(&self, name: &str, min: Quantity) -> Option<String> {
        let [request, limit, bound] = self.comparable(name, min);
        let prefix = format!("minimum {name} usage per {} is {min}", self.limit_type);
        match (self.request(name), self.limit(name)) {
            (None, _) => Some(format!("{prefix}.  No request is specified")),
            (Some(requested), _) if request < bound => {
                Some(format!("{prefix}, but request is {requested}"))
            }
            (_, Some(limited)) if limit < bound => {
                Some(format!("{prefix}, but limit is {limited}"))
            }
            _ => None,
        }
    }

    /// Returns a message if the request or the limit is above the maximum, or the limit is absent.
    fn above_max(&self, name: &str, max: Quantity) -> Option<String> {
        let [request, limit, bound] = self.comparable(name, max);
        let prefix = format!("maximum {name} usage per {} is {max}", self.limit_type);
        match (self.limit(name), self.request(name)) {
            (None, _) => Some(format!("{prefix}.  No limit is specified")),
            (Some(limited), _) if limit > bound => {
                Some(format!("{prefix}, but limit is {limited}"))
            }
            (_, Some(requested)) if request > bound => {
                Some(format!("{prefix}, but request is {requested}"))
            }
            _ => None,
        }
    }

    /// Returns a message if the request of a claim is above the maximum, or the request is absent. Claims have no
    /// limits.
    fn request_above_max(&self, name: &str, max: Quantity) -> Option<String> {
        let [request, _, bound] = self.comparable(name, max);
        let prefix = format!("maximum {name} usage per {} is {max}", self.limit_type);
        match self.request(name) {
            None => Some(format!("{prefix}.  No request is specified")),
            Some(requested) if request > bound => {
                Some(format!("{prefix}, but request is {requested}"))
            }
            Some(_) => None,
        }
    }

    /// Returns a message if the ratio of limit to request is above the maximum, or one of them is missing.
    fn above_max_ratio(&self, name: &str, max: Quantity) -> Option<String> {
        let [request, limit, _] = self.comparable(name, max);
        let prefix = format!("{name} max limit to request ratio per {} is {max}", self.limit_type);
        if request == 0 {
            return Some(format!("{prefix}, but no request is specified or request is 0"));
        }
        if limit == 0 {
            return Some(format!("{prefix}, but no limit is specified or limit is 0"));
        }
        let ratio = limit as f64 / request as f64;
        let exceeds = if max.value() <= MAX_UNITS_IN_MILLIS {
            ratio * 1000.0 > max.milli_value() as f64
        } else {
            ratio > max.value() as f64
        };
        exceeds.then(|| format!("{prefix}, but provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn range(items: &Value) -> LimitRange {
        decoded(&json!({"spec": {"limits": items}})).expect("a LimitRange")
    }

    #[test]
    fn defaults_are_filled_in_and_reported() {
        let range = range(
            &json!([{"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}]),
        );
        let mut applied_defaults = Vec::new();
        let mut container = json!({"name": "c", "resources": {"limits": {"cpu": "1"}}});
        set_container_defaults(&mut container, "container", &range, &mut applied_defaults);
        assert_eq!(
            container["resources"],
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(
            applied_defaults,
            ["cpu request for container c", "memory limit for container c"]
        );
        set_container_defaults(&mut container, "container", &range, &mut applied_defaults);
        assert_eq!(applied_defaults.len(), 2, "values that are set stay");
    }

    #[test]
    fn what_is_outside_is_reported() {
        let container = |resources: &str| {
            let resources: Value = serde_json::from_str(resources).expect("JSON");
            decoded::<Pod>(
                &json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}),
            )
            .expect("a pod")
        };
        let table = [
            (
                r#"{"min": {"cpu": "100m"}}"#,
                "{}",
                Some("minimum cpu usage per Container is 100m.  No request is specified"),
            ),
            (
                r#"{"min": {"cpu": "100m"}}"#,
                r#"{"requests": {"cpu": "50m"}}"#,
                Some("minimum cpu usage per Container is 100m, but request is 50m"),
            ),
            (
                r#"{"min": {"cpu": "100m"}}"#,
                r#"{"requests": {"cpu": "0.2"}, "limits": {"cpu": "50m"}}"#,
                Some("minimum cpu usage per Container is 100m, but limit is 50m"),
            ),
            (r#"{"min": {"cpu": "100m"}}"#, r#"{"requests": {"cpu": "100m"}}"#, None),
            (
                r#"{"max": {"memory": "1Gi"}}"#,
                r#"{"requests": {"memory": "1Gi"}}"#,
                Some("maximum memory usage per Container is 1Gi.  No limit is specified"),
            ),
            (
                r#"{"max": {"memory": "1Gi"}}"#,
                r#"{"limits": {"memory": "2Gi"}}"#,
                Some("maximum memory usage per Container is 1Gi, but limit is 2Gi"),
            ),
            (r#"{"max": {"memory": "1Gi"}}"#, r#"{"limits": {"memory": "1Gi"}}"#, None),
            (
                r#"{"maxLimitRequestRatio": {"cpu": "2"}}"#,
                r#"{"limits": {"cpu": "1"}}"#,
                Some(
                    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
                ),
            ),
            (
                r#"{"maxLimitRequestRatio": {"cpu": "2"}}"#,
                r#"{"requests": {"cpu": "1"}}"#,
                Some(
                    "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
                ),
            ),
            (
                r#"{"maxLimitRequestRatio": {"cpu": "1500m"}}"#,
                r#"{"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}"#,
                Some(
                    "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000",
                ),
            ),
            (
                r#"{"maxLimitRequestRatio": {"cpu": "2"}}"#,
                r#"{"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}"#,
                None,
            ),
        ];
        for (item, resources, want) in table {
            let mut item: Value = serde_json::from_str(item).expect("JSON");
            item["type"] = json!("Container");
            let message =
                aggregate_message(pod_violations(&range(&json!([item])), &container(resources)));
            assert_eq!(message.as_deref(), want, "{item} {resources}");
        }
    }

    #[test]
    fn a_pod_is_taken_whole_and_a_claim_by_its_request() {
        let pod: Pod = decoded(&json!({"spec": {
            "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "3"}}}],
            "containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}, {"name": "b", "resources": {"limits": {"cpu": "1"}}}],
        }}))
        .expect("a pod");
        let most = |cpu: &str| range(&json!([{"type": "Pod", "max": {"cpu": cpu}}]));
        assert_eq!(aggregate_message(pod_violations(&most("3"), &pod)), None);
        assert_eq!(
            aggregate_message(pod_violations(&most("2"), &pod)).as_deref(),
            Some("maximum cpu usage per Pod is 2, but limit is 3")
        );
        let claim: PersistentVolumeClaim =
            decoded(&json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}}))
                .expect("a claim");
        let range = range(&json!([
            {"type": "PersistentVolumeClaim", "min": {"storage": "6Gi"}, "max": {"storage": "4Gi"}},
            {"type": "PersistentVolumeClaim", "max": {"storage": "4Gi"}},
        ]));
        assert_eq!(
            aggregate_message(claim_violations(&range, &claim)).as_deref(),
            Some(
                "[minimum storage usage per PersistentVolumeClaim is 6Gi, but request is 5Gi, \
                 maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi]"
            )
        );
    }
}
