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
/// values, and the pod's overhead is added.
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
                let desired_requests =
                    if is_infeasible(pod) { Amounts::new() } else { amounts(&pod_level.requests) };
                let mut most = desired_requests;
                raise_to(&mut most, &amounts(&actual.requests));
                raise_to(&mut most, &amounts(&pod.status.allocated_resources));
                replace_pod_level(&mut total, most);
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
    containers.any(|one| one.resources.is_some() || !one.allocated_resources.is_empty())
        || status.resources.is_some()
        || is_infeasible(pod)
}

/// Returns whether an in-place resize is infeasible on the pod's node.
fn is_infeasible(pod: &Pod) -> bool {
    let pending = pod.status.conditions.iter().find(|one| &*one.type_ == "PodResizePending");
    pending.is_some_and(|pending| &*pending.reason == "Infeasible")
}

fn desired_requests<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    aggregate(pod, |one, _| with_defaults(amounts(&one.resources.requests), defaults))
}

fn container_requests<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    if !depends_on_status(pod) {
        return desired_requests(pod, defaults);
    }
    let infeasible = is_infeasible(pod);
    let allocated = |one: &'a Container, status: Option<&'a ContainerStatus>| match status
        .filter(|status| !status.allocated_resources.is_empty())
    {
        Some(status) => amounts(&status.allocated_resources),
        None if infeasible => Amounts::new(),
        None => amounts(&one.resources.requests),
    };
    let actual = |one: &'a Container, status: Option<&'a ContainerStatus>| {
        let own = status.and_then(|status| status.resources.as_deref());
        match own.filter(|own| !own.requests.is_empty()) {
            Some(own) => amounts(&own.requests),
            None => allocated(one, status),
        }
    };
    let in_status = pod.status.resources.as_deref().filter(|pod_level| {
        !pod_level.requests.is_empty() && !pod.status.allocated_resources.is_empty()
    });
    let (mut most, actual) = match in_status {
        Some(pod_level) => (amounts(&pod.status.allocated_resources), amounts(&pod_level.requests)),
        None => (
            aggregate(pod, |one, status| with_defaults(allocated(one, status), defaults)),
            aggregate(pod, |one, status| with_defaults(actual(one, status), defaults)),
        ),
    };
    raise_to(&mut most, &actual);
    if !infeasible {
        raise_to(&mut most, &desired_requests(pod, defaults));
    }
    most
}

/// Aggregates the resources that `pick` returns for each container of a pod: the sum over the containers, or the
/// peak of the init containers if that is greater (KEP-753).
pub fn aggregate<'a>(
    pod: &'a Pod,
    pick: impl Fn(&'a Container, Option<&'a ContainerStatus>) -> Amounts<'a>,
) -> Amounts<'a> {
    let spec = &pod.spec;
    let statuses =
        || pod.status.container_statuses.iter().chain(&*pod.status.init_container_statuses);
    let container = |container: &'a Container| {
        pick(container, statuses().find(|status| status.name == container.name))
    };
    let (mut total, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for one in &spec.containers {
        add(&mut total, &container(one));
    }
    for init in &spec.init_containers {
        let mut needed = container(init);
        if &*init.restart_policy == "Always" {
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

/// Replaces the aggregated amounts by the pod-level ones, for resources that pods support.
pub(crate) fn replace_pod_level<'a>(total: &mut Amounts<'a>, pod_level: Amounts<'a>) {
    for (name, amount) in pod_level.into_iter().filter(|(name, _)| is_pod_level_resource(name)) {
        total.retain(|(own, _)| *own != name);
        total.push((name, amount));
    }
}

/// Adds `defaults` for missing requests.
fn with_defaults<'a>(mut amounts: Amounts<'a>, defaults: &Defaults) -> Amounts<'a> {
    for (name, amount) in defaults {
        if !amounts.iter().any(|(own, _)| own == name) {
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

/// Adds amounts, by name.
pub(crate) fn add<'a>(to: &mut Amounts<'a>, more: &[(&'a str, Quantity)]) {
    for (name, amount) in more {
        match to.iter_mut().find(|(own, _)| own == name) {
            Some((_, sum)) => *sum = sum.plus(*amount),
            None => to.push((name, *amount)),
        }
    }
}

/// Raises each quantity to at least the one in `least`.
pub(crate) fn raise_to<'a>(to: &mut Amounts<'a>, least: &[(&'a str, Quantity)]) {
    for (name, amount) in least {
        match to.iter_mut().find(|(own, _)| own == name) {
            Some((_, own)) => *own = (*own).max(*amount),
            None => to.push((name, *amount)),
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
