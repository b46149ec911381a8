//! Resources of a whole pod: what its containers request and limit together, and the defaults of those that the pod
//! states itself.

use std::collections::BTreeMap;

use evenkeel_api::quantity::Quantity;
use evenkeel_apimachinery::value::{self, Object, list, object, set, text};
use serde_json::Value;

/// Quantities by resource name.
pub(crate) type Amounts<'a> = BTreeMap<&'a str, Quantity>;

/// Returns a quantity; `None` if it is malformed.
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
/// containers if that is greater. A sidecar counts with both.
///
/// Upstream: `AggregateContainerRequests`, `AggregateContainerLimits`.
pub(crate) fn aggregate<'a>(spec: &'a Value, field: &str) -> Amounts<'a> {
    let of = |container: &'a Value| amounts(object(container, &format!("resources.{field}")));
    let (mut total, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in list(spec, "containers") {
        add(&mut total, &of(container));
    }
    for container in list(spec, "initContainers") {
        let mut needed = of(container);
        if text(container, "restartPolicy") == "Always" {
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

fn add<'a>(total: &mut Amounts<'a>, more: &Amounts<'a>) {
    for (name, amount) in more {
        total.entry(name).and_modify(|sum| *sum = sum.plus(*amount)).or_insert(*amount);
    }
}

fn raise_to<'a>(most: &mut Amounts<'a>, other: &Amounts<'a>) {
    for (name, amount) in other {
        most.entry(name).and_modify(|most| *most = (*most).max(*amount)).or_insert(*amount);
    }
}

/// Returns whether a pod can state this resource for all of its containers.
///
/// Upstream: `IsSupportedPodLevelResource`.
pub(crate) fn is_supported(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Returns whether a pod states a resource for all of its containers.
///
/// Upstream: `IsPodLevelResourcesSet`.
pub(crate) fn are_set(spec: &Value) -> bool {
    let maps = ["resources.requests", "resources.limits"].map(|field| object(spec, field));
    maps.into_iter().flatten().flatten().any(|(name, _)| is_supported(name))
}

/// Completes the resources that a pod states: requests default to those of the containers and then to the limits, and
/// limits to those of the containers if each has one.
///
/// Upstream: `DefaultPodLevelResources`.
pub(crate) fn default(pod: &mut Value) {
    let Some(spec) = pod.get("spec") else { return };
    let stated = |field: &str| object(spec, field).cloned().unwrap_or_default();
    let (mut requests, mut limits) = (stated("resources.requests"), stated("resources.limits"));
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    let (all_requests, all_limits) = (aggregate(spec, "requests"), aggregate(spec, "limits"));
    for (name, limit) in &all_limits {
        if name.starts_with("hugepages-") && !requests.contains_key(*name) {
            limits.entry(*name).or_insert_with(|| limit.to_string().into());
        }
    }
    for (name, request) in &all_requests {
        if matches!(*name, "cpu" | "memory") {
            requests.entry(*name).or_insert_with(|| request.to_string().into());
        }
    }
    for (name, limit) in limits.iter().filter(|(name, _)| is_supported(name)) {
        requests.entry(name.as_str()).or_insert_with(|| limit.clone());
    }
    let all_have_limit = |name: &str| {
        ["containers", "initContainers", "ephemeralContainers"]
            .iter()
            .flat_map(|field| list(spec, field))
            .all(|one| object(one, "resources.limits").is_some_and(|map| map.contains_key(name)))
    };
    for (name, request) in requests.iter().filter(|(name, _)| is_supported(name)) {
        if limits.contains_key(name.as_str()) || !all_have_limit(name) {
            continue;
        }
        let Some(limit) = all_limits.get(name.as_str()) else { continue };
        let most = quantity(request).map_or(*limit, |request| request.max(*limit));
        limits.insert(name.clone(), most.to_string().into());
    }
    for (field, map) in [("spec.resources.requests", requests), ("spec.resources.limits", limits)] {
        if !map.is_empty() {
            set(pod, field, map);
        }
    }
}

/// Returns the QoS class of a pod. Resources of the pod itself decide alone. Else it is Guaranteed if all limits equal
/// requests, BestEffort without any, and Burstable in all other cases.
///
/// Upstream: `ComputePodQOS`.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let none = Value::Null;
    let spec = pod.get("spec").unwrap_or(&none);
    if are_set(spec) {
        return class_of(value::get(spec, "resources").unwrap_or(&none));
    }
    let containers = ["initContainers", "containers"].iter().flat_map(|field| list(spec, field));
    common(containers.map(|one| class_of(value::get(one, "resources").unwrap_or(&none))))
}

/// Upstream: `requirementsQOS`.
fn class_of(resources: &Value) -> &'static str {
    common(["cpu", "memory"].into_iter().map(|name| {
        let amount = |field: &str| {
            let amount = object(resources, field).and_then(|map| map.get(name));
            amount.and_then(quantity).unwrap_or_default()
        };
        match (amount("requests"), amount("limits")) {
            (request, limit) if request != limit => "Burstable",
            (request, _) if request.is_zero() => "BestEffort",
            _ => "Guaranteed",
        }
    }))
}

/// The class that all have, or else Burstable.
fn common(mut classes: impl Iterator<Item = &'static str>) -> &'static str {
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
