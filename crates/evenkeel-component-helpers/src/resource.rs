//! Resource requests of a pod, aggregated over its containers as kubelet and scheduler do
//! (`k8s.io/component-helpers/resource`).

use evenkeel_api::{
    map::Map,
    quantity::Quantity,
    views::{Container, ContainerStatus, Pod},
};

/// Quantities by resource name, unsorted. Each name occurs once.
pub type Amounts<'a> = Vec<(&'a str, Quantity)>;

/// Default requests for containers without any. Only scoring uses them.
pub type Defaults = [(&'static str, Quantity)];

/// Returns the requests of a pod: the sum over its containers, or the peak of its init containers if that is
/// greater. A sidecar adds to the containers and to the init containers after it. Pod-level requests replace these
/// sums. The pod's overhead is added at the end.
///
/// During an in-place resize, the requests are the maximum of desired, allocated and actual requests
/// (KEP-1287). A desired request that is infeasible on the node does not count.
///
/// Upstream: `PodRequests`.
pub fn pod_requests<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    let mut total = container_requests(pod, defaults);
    if let Some(pod_level) = &pod.spec.resources
        && has_pod_level_requests(pod)
    {
        match &pod.status.resources {
            None => replace_pod_level(&mut total, amounts(&pod_level.requests)),
            Some(actual) => {
                let desired_requests = if is_resize_infeasible(pod) {
                    Amounts::new()
                } else {
                    amounts(&pod_level.requests)
                };
                let mut maximum = desired_requests;
                raise_to(&mut maximum, &amounts(&actual.requests));
                raise_to(&mut maximum, &amounts(&pod.status.allocated_resources));
                replace_pod_level(&mut total, maximum);
            }
        }
    }
    for (name, amount) in pod.spec.overhead.iter() {
        add(&mut total, &[(name, *amount)]);
    }
    total
}

/// Returns a pod's requests from the specs of its containers and its overhead, without pod-level resources and
/// status.
pub fn spec_requests<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    let mut total = desired_requests(pod, defaults);
    for (name, amount) in pod.spec.overhead.iter() {
        add(&mut total, &[(name, *amount)]);
    }
    total
}

/// Returns whether the pod has pod-level requests.
pub fn has_pod_level_requests(pod: &Pod) -> bool {
    pod.spec.resources.as_deref().is_some_and(|pod_level| {
        pod_level.requests.iter().any(|(name, _)| is_pod_level_resource(name))
    })
}

/// Returns whether the pod's requests depend on its status.
pub fn depends_on_status(pod: &Pod) -> bool {
    let status = &pod.status;
    let mut containers = status.container_statuses.iter().chain(&*status.init_container_statuses);
    containers.any(|status| status.resources.is_some() || !status.allocated_resources.is_empty())
        || status.resources.is_some()
        || is_resize_infeasible(pod)
}

/// Returns whether an in-place resize is infeasible on the pod's node.
fn is_resize_infeasible(pod: &Pod) -> bool {
    let pending =
        pod.status.conditions.iter().find(|condition| &*condition.type_ == "PodResizePending");
    pending.is_some_and(|pending| &*pending.reason == "Infeasible")
}

/// Returns the requests in the specs of the pod's containers, aggregated.
fn desired_requests<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    aggregate(pod, |container, _| with_defaults(amounts(&container.resources.requests), defaults))
}

/// Returns the requests of the pod's containers, aggregated. Each is the maximum of the desired, allocated and actual
/// request.
fn container_requests<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    if !depends_on_status(pod) {
        return desired_requests(pod, defaults);
    }
    let is_infeasible = is_resize_infeasible(pod);
    let allocated = |container: &'a Container, status: Option<&'a ContainerStatus>| match status {
        Some(status) if !status.allocated_resources.is_empty() => {
            amounts(&status.allocated_resources)
        }
        _ if is_infeasible => Amounts::new(),
        _ => amounts(&container.resources.requests),
    };
    let actual = |container: &'a Container, status: Option<&'a ContainerStatus>| match status
        .and_then(|status| status.resources.as_deref())
    {
        Some(resources) if !resources.requests.is_empty() => amounts(&resources.requests),
        _ => allocated(container, status),
    };
    let pod_level_status = pod.status.resources.as_deref().filter(|pod_level| {
        !pod_level.requests.is_empty() && !pod.status.allocated_resources.is_empty()
    });
    let (allocated, actual) = match pod_level_status {
        Some(pod_level) => (amounts(&pod.status.allocated_resources), amounts(&pod_level.requests)),
        None => (
            aggregate(pod, |container, status| {
                with_defaults(allocated(container, status), defaults)
            }),
            aggregate(pod, |container, status| with_defaults(actual(container, status), defaults)),
        ),
    };
    let mut maximum = allocated;
    raise_to(&mut maximum, &actual);
    if !is_infeasible {
        raise_to(&mut maximum, &desired_requests(pod, defaults));
    }
    maximum
}

/// Aggregates the resources that `resources_of` returns for each container of a pod and its status: the sum over the
/// containers, or the peak of the init containers if that is greater.
///
/// A sidecar runs beside the containers and beside the init containers after it, so it counts in both (KEP-753).
pub fn aggregate<'a>(
    pod: &'a Pod,
    resources_of: impl Fn(&'a Container, Option<&'a ContainerStatus>) -> Amounts<'a>,
) -> Amounts<'a> {
    let spec = &pod.spec;
    let statuses =
        || pod.status.container_statuses.iter().chain(&*pod.status.init_container_statuses);
    let resources = |container: &'a Container| {
        resources_of(container, statuses().find(|status| status.name == container.name))
    };
    let (mut total, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in &spec.containers {
        add(&mut total, &resources(container));
    }
    for init in &spec.init_containers {
        let mut needed = resources(init);
        let is_sidecar = &*init.restart_policy == "Always";
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

/// Replaces the aggregated amounts by the pod-level amounts, for the resources that are supported at pod level.
pub(crate) fn replace_pod_level<'a>(total: &mut Amounts<'a>, pod_level: Amounts<'a>) {
    for (name, amount) in pod_level.into_iter().filter(|(name, _)| is_pod_level_resource(name)) {
        total.retain(|(present, _)| *present != name);
        total.push((name, amount));
    }
}

/// Adds `defaults` for missing requests.
fn with_defaults<'a>(mut amounts: Amounts<'a>, defaults: &Defaults) -> Amounts<'a> {
    for (name, amount) in defaults {
        if !amounts.iter().any(|(present, _)| present == name) {
            amounts.push((name, *amount));
        }
    }
    amounts
}

/// Returns the entries of a map.
pub fn amounts(map: &Map<Quantity>) -> Amounts<'_> {
    map.iter().map(|(name, amount)| (name, *amount)).collect()
}

/// Returns whether a resource is supported at pod level (KEP-2837).
pub(crate) fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Adds the amounts of `more` to `total`, by name.
pub(crate) fn add<'a>(total: &mut Amounts<'a>, more: &[(&'a str, Quantity)]) {
    for (name, amount) in more {
        match total.iter_mut().find(|(present, _)| present == name) {
            Some((_, sum)) => *sum = sum.plus(*amount),
            None => total.push((name, *amount)),
        }
    }
}

/// Raises each amount in `maximum` to at least the amount in `minimum`, by name.
pub(crate) fn raise_to<'a>(maximum: &mut Amounts<'a>, minimum: &[(&'a str, Quantity)]) {
    for (name, amount) in minimum {
        match maximum.iter_mut().find(|(present, _)| present == name) {
            Some((_, present)) => *present = (*present).max(*amount),
            None => maximum.push((name, *amount)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View};

    /// Returns the requests of a pod with this spec, in millicores.
    fn cpu(spec: &str, defaults: &Defaults) -> Option<i64> {
        let body = format!(r#"{{"metadata":{{"name":"p"}},"spec":{spec}}}"#);
        let pod = Pod::decode(body.as_bytes(), Encoding::Json).unwrap();
        pod_requests(&pod, defaults)
            .iter()
            .find(|(name, _)| *name == "cpu")
            .map(|(_, amount)| amount.milli_value())
    }

    #[test]
    fn pod_requests_aggregate_containers_overhead_and_pod_level_requests() {
        let c =
            |cpu: &str| format!(r#"{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#);
        let sidecar = |cpu: &str| {
            format!(
                r#"{{"name":"s","restartPolicy":"Always","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#
            )
        };
        let spec = |inits: &str, mains: &str, more: &str| {
            format!(r#"{{"initContainers":[{inits}],"containers":[{mains}]{more}}}"#)
        };
        let table = [
            ("no requests", spec("", r#"{"name":"c"}"#, ""), None),
            ("sum of containers", spec("", &format!("{},{}", c("100m"), c("0.2")), ""), Some(300)),
            ("a big init container", spec(&c("1"), &c("100m"), ""), Some(1000)),
            ("a small init container", spec(&c("50m"), &c("100m"), ""), Some(100)),
            (
                "a sidecar runs beside the containers",
                spec(&sidecar("200m"), &c("100m"), ""),
                Some(300),
            ),
            (
                "an init container after a sidecar",
                spec(&format!("{},{}", sidecar("200m"), c("1")), &c("100m"), ""),
                Some(1200),
            ),
            (
                "an init container before a sidecar",
                spec(&format!("{},{}", c("1"), sidecar("200m")), &c("100m"), ""),
                Some(1000),
            ),
            ("overhead", spec("", &c("100m"), r#","overhead":{"cpu":"10m"}"#), Some(110)),
            (
                "pod level",
                spec(
                    "",
                    &c("100m"),
                    r#","resources":{"requests":{"cpu":"2"}},"overhead":{"cpu":"10m"}"#,
                ),
                Some(2010),
            ),
        ];
        for (name, spec, want) in table {
            assert_eq!(cpu(&spec, &[]), want, "{name}");
        }
        let defaults = [("cpu", Quantity::from_millis(100))];
        assert_eq!(
            cpu(&spec("", &format!(r#"{{"name":"d"}},{}"#, c("1")), ""), &defaults),
            Some(1100)
        );
    }

    #[test]
    fn a_resize_requests_the_maximum_of_desired_allocated_and_actual_requests() {
        // Returns the requests in millicores. `more` is inserted into the spec.
        let pod = |desired_requests: &str, status: &str, more: &str| {
            let body = format!(
                r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{desired_requests}"}}}}}}]{more}}},
                "status":{status}}}"#
            );
            let pod = Pod::decode(body.as_bytes(), Encoding::Json).unwrap();
            let total = pod_requests(&pod, &[]);
            total.iter().find(|(name, _)| *name == "cpu").map(|(_, amount)| amount.milli_value())
        };
        let container = |allocated: &str, actual: &str| {
            format!(
                r#"{{"containerStatuses":[{{"name":"c","allocatedResources":{{"cpu":"{allocated}"}},"resources":{{"requests":{{"cpu":"{actual}"}}}}}}]}}"#
            )
        };
        assert_eq!(pod("3", &container("1", "2"), ""), Some(3000));
        assert_eq!(pod("1", &container("3", "2"), ""), Some(3000));
        assert_eq!(pod("1", &container("2", "3"), ""), Some(3000));
        let infeasible_resize =
            r#","conditions":[{"type":"PodResizePending","status":"True","reason":"Infeasible"}]}"#;
        let mut status = container("1", "2");
        status.truncate(status.len() - 1);
        assert_eq!(pod("9", &format!("{status}{infeasible_resize}"), ""), Some(2000));
        let pod_level_status =
            r#"{"allocatedResources":{"cpu":"5"},"resources":{"requests":{"cpu":"4"}}}"#;
        let pod_level_spec = r#","resources":{"requests":{"cpu":"2"}}"#;
        assert_eq!(pod("1", pod_level_status, pod_level_spec), Some(5000));
    }
}
