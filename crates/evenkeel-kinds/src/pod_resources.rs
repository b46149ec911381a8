//! Resources of a whole pod: the sum of the requests and limits of its containers, the defaults of pod-level resources,
//! and the QoS class.

use std::collections::BTreeMap;

use evenkeel_api::quantity::Quantity;
use evenkeel_apimachinery::value::{self, Object, list, object, set, text};
use serde_json::Value;

/// Quantities by resource name.
pub(crate) type Amounts<'a> = BTreeMap<&'a str, Quantity>;

/// Parses a quantity; `None` if it is malformed.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// Returns the quantities of a map of resources.
fn amounts(map: Option<&Object>) -> Amounts<'_> {
    let pairs = map.into_iter().flatten();
    pairs.filter_map(|(name, amount)| Some((&**name, quantity(amount)?))).collect()
}

/// Aggregates `requests` or `limits` of a pod's containers: the sum over the containers, or the peak of the init
/// containers if that is greater. A sidecar counts in both, because it runs beside both.
///
/// Upstream: `AggregateContainerRequests`, `AggregateContainerLimits`.
pub(crate) fn aggregate<'a>(spec: &'a Value, field: &str) -> Amounts<'a> {
    let resources =
        |container: &'a Value| amounts(object(container, &format!("resources.{field}")));
    let (mut total, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in list(spec, "containers") {
        add(&mut total, &resources(container));
    }
    for container in list(spec, "initContainers") {
        let mut needed = resources(container);
        let is_sidecar = text(container, "restartPolicy") == "Always";
        if is_sidecar {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed.clone_from(&sidecars);
        } else {
            add(&mut needed, &sidecars);
        }
        raise_to(&mut peak, &needed);
    }
    raise_to(&mut total, &peak);
    total
}

/// Adds the amounts of `more` to `total`, by name.
fn add<'a>(total: &mut Amounts<'a>, more: &Amounts<'a>) {
    for (name, amount) in more {
        total.entry(name).and_modify(|sum| *sum = sum.plus(*amount)).or_insert(*amount);
    }
}

/// Raises each amount in `maximum` to at least the amount in `minimum`, by name.
fn raise_to<'a>(maximum: &mut Amounts<'a>, minimum: &Amounts<'a>) {
    for (name, amount) in minimum {
        maximum
            .entry(name)
            .and_modify(|present| *present = (*present).max(*amount))
            .or_insert(*amount);
    }
}

/// Returns whether a resource is supported at pod level.
///
/// Upstream: `IsSupportedPodLevelResource`.
pub(crate) fn is_supported(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Returns whether a pod has pod-level requests or limits.
///
/// Upstream: `IsPodLevelResourcesSet`.
pub(crate) fn are_set(spec: &Value) -> bool {
    let maps = ["resources.requests", "resources.limits"].map(|field| object(spec, field));
    maps.into_iter().flatten().flatten().any(|(name, _)| is_supported(name))
}

/// Completes pod-level resources, if the pod has any:
///
/// - A missing request becomes the sum over the containers, or else the pod-level limit.
/// - A missing limit becomes the sum over the containers, if each container has a limit.
///
/// Upstream: `DefaultPodLevelResources`.
pub(crate) fn default(pod: &mut Value) {
    let Some(spec) = pod.get("spec") else { return };
    let pod_level = |field: &str| object(spec, field).cloned().unwrap_or_default();
    let mut requests = pod_level("resources.requests");
    let mut limits = pod_level("resources.limits");
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    let container_requests = aggregate(spec, "requests");
    let container_limits = aggregate(spec, "limits");
    for (name, limit) in &container_limits {
        if name.starts_with("hugepages-") && !requests.contains_key(*name) {
            limits.entry(*name).or_insert_with(|| limit.to_string().into());
        }
    }
    for (name, request) in &container_requests {
        if matches!(*name, "cpu" | "memory") {
            requests.entry(*name).or_insert_with(|| request.to_string().into());
        }
    }
    for (name, limit) in limits.iter().filter(|(name, _)| is_supported(name)) {
        requests.entry(name.as_str()).or_insert_with(|| limit.clone());
    }
    let all_containers_have_limit = |name: &str| {
        let lists = ["containers", "initContainers", "ephemeralContainers"];
        let mut containers = lists.iter().flat_map(|field| list(spec, field));
        containers.all(|container| {
            object(container, "resources.limits").is_some_and(|limits| limits.contains_key(name))
        })
    };
    for (name, request) in requests.iter().filter(|(name, _)| is_supported(name)) {
        if limits.contains_key(name.as_str()) || !all_containers_have_limit(name) {
            continue;
        }
        let Some(sum) = container_limits.get(name.as_str()) else { continue };
        // The limit must not be below the request.
        let limit = quantity(request).map_or(*sum, |request| request.max(*sum));
        limits.insert(name.clone(), limit.to_string().into());
    }
    for (field, map) in [("spec.resources.requests", requests), ("spec.resources.limits", limits)] {
        if !map.is_empty() {
            set(pod, field, map);
        }
    }
}

/// Returns the QoS class of a pod: Guaranteed if all limits equal the requests, BestEffort without limits and requests,
/// and Burstable otherwise. If the pod has pod-level resources, the containers' resources do not count.
///
/// Upstream: `ComputePodQOS`.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let none = Value::Null;
    let spec = pod.get("spec").unwrap_or(&none);
    if are_set(spec) {
        return class_of_resources(value::get(spec, "resources").unwrap_or(&none));
    }
    let containers = ["initContainers", "containers"].iter().flat_map(|field| list(spec, field));
    combine_classes(
        containers.map(|container| {
            class_of_resources(value::get(container, "resources").unwrap_or(&none))
        }),
    )
}

/// Returns the QoS class of the resources of a container or a pod.
///
/// Upstream: `requirementsQOS`.
fn class_of_resources(resources: &Value) -> &'static str {
    let class_of_resource = |name: &str| {
        let amount = |field: &str| {
            let amount = object(resources, field).and_then(|amounts| amounts.get(name));
            amount.and_then(quantity).unwrap_or_default()
        };
        match (amount("requests"), amount("limits")) {
            (request, limit) if request != limit => "Burstable",
            (request, _) if request.is_zero() => "BestEffort",
            _ => "Guaranteed",
        }
    };
    combine_classes(["cpu", "memory"].into_iter().map(class_of_resource))
}

/// Returns the class that all have in common, or else Burstable.
fn combine_classes(mut classes: impl Iterator<Item = &'static str>) -> &'static str {
    let Some(first) = classes.next() else { return "BestEffort" };
    if classes.all(|class| class == first) { first } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resources_of_the_pod_decide_its_qos_class() {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
        for (resources, class) in [
            (json!(null), "Burstable"),
            (json!({"requests": {}, "limits": {}}), "Burstable"),
            (
                json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1Gi"}}),
                "Guaranteed",
            ),
            (json!({"limits": {"hugepages-2Mi": "2Mi"}}), "BestEffort"),
            (json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), "Burstable"),
        ] {
            let pod = json!({"spec": {"containers": [container], "resources": resources}});
            assert_eq!(qos_class(&pod), class, "{pod}");
        }
    }

    #[test]
    fn absent_resources_of_the_pod_follow_from_the_containers_and_the_limits() {
        let container = |cpu: &str, memory: &str| json!({"resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}}});
        let mut pod = json!({"spec": {
            "containers": [container("100m", "64Mi"), container("200m", "64Mi")],
            "resources": {"requests": {"memory": "1Gi"}, "limits": {"hugepages-2Mi": "2Mi"}},
        }});
        default(&mut pod);
        let expected = json!({
            "requests": {"cpu": "300m", "memory": "1Gi", "hugepages-2Mi": "2Mi"},
            "limits": {"hugepages-2Mi": "2Mi", "memory": "1Gi"},
        });
        assert_eq!(pod["spec"]["resources"], expected);
    }
}
