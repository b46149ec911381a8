//! Resource requests of a pod, summed over its containers as kubelet and scheduler do
//! (`k8s.io/component-helpers/resource`).

use crate::{
    map::Map,
    quantity::Quantity,
    views::{Container, ContainerStatus, Pod},
};

/// Resource names and amounts, each name once, in no particular order.
pub type Amounts<'a> = Vec<(&'a str, Quantity)>;

/// Assumed requests of containers without any; for scores only.
pub type Defaults = [(&'static str, Quantity)];

/// The requests of a whole pod: the containers' sum, or what the init containers need at their peak if that is more
/// (sidecars run on beside everything after them), the pod-level figures in place of them, and the overhead on top.
///
/// During an in-place resize that is the most of what is wished, set aside and in force (KEP-1287); a wish that its node can
/// never fulfil does not count.
pub fn of_pod<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    let mut total = of_containers(pod, defaults);
    if let Some(whole) = &pod.spec.resources
        && sets_pod_level(pod)
    {
        match &pod.status.resources {
            None => replace_pod_level(&mut total, amounts(&whole.requests)),
            Some(in_force) => {
                let wished =
                    if is_infeasible(pod) { Amounts::new() } else { amounts(&whole.requests) };
                let mut most = wished;
                raise(&mut most, &amounts(&in_force.requests));
                raise(&mut most, &amounts(&pod.status.allocated_resources));
                replace_pod_level(&mut total, most);
            }
        }
    }
    for (name, amount) in pod.spec.overhead.iter() {
        add(&mut total, &[(name, *amount)]);
    }
    total
}

/// The requests of a pod as its containers' specs have them, without what is set for the pod as a whole.
pub fn of_specs<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    let mut total = wished(pod, defaults);
    for (name, amount) in pod.spec.overhead.iter() {
        add(&mut total, &[(name, *amount)]);
    }
    total
}

/// Whether requests are set for the pod as a whole.
pub fn sets_pod_level(pod: &Pod) -> bool {
    pod.spec
        .resources
        .as_deref()
        .is_some_and(|whole| whole.requests.iter().any(|(name, _)| pod_level(name)))
}

/// Whether the status takes part in the requests of a pod.
pub fn depends_on_status(pod: &Pod) -> bool {
    let status = &pod.status;
    let mut containers = status.container_statuses.iter().chain(&*status.init_container_statuses);
    containers.any(|one| one.resources.is_some() || !one.allocated_resources.is_empty())
        || status.resources.is_some()
        || is_infeasible(pod)
}

/// Whether an in-place resize is infeasible on the pod's node.
fn is_infeasible(pod: &Pod) -> bool {
    let pending = pod.status.conditions.iter().find(|one| &*one.type_ == "PodResizePending");
    pending.is_some_and(|pending| &*pending.reason == "Infeasible")
}

fn wished<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    aggregate(pod, |one, _| filled(amounts(&one.resources.requests), defaults))
}

fn of_containers<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    if !depends_on_status(pod) {
        return wished(pod, defaults);
    }
    let infeasible = is_infeasible(pod);
    let set_aside = |one: &'a Container, status: Option<&'a ContainerStatus>| match status
        .filter(|status| !status.allocated_resources.is_empty())
    {
        Some(status) => amounts(&status.allocated_resources),
        None if infeasible => Amounts::new(),
        None => amounts(&one.resources.requests),
    };
    let in_force = |one: &'a Container, status: Option<&'a ContainerStatus>| {
        let own = status.and_then(|status| status.resources.as_deref());
        match own.filter(|own| !own.requests.is_empty()) {
            Some(own) => amounts(&own.requests),
            None => set_aside(one, status),
        }
    };
    let of_whole =
        pod.status.resources.as_deref().filter(|whole| {
            !whole.requests.is_empty() && !pod.status.allocated_resources.is_empty()
        });
    let (mut most, in_force) = match of_whole {
        Some(whole) => (amounts(&pod.status.allocated_resources), amounts(&whole.requests)),
        None => (
            aggregate(pod, |one, status| filled(set_aside(one, status), defaults)),
            aggregate(pod, |one, status| filled(in_force(one, status), defaults)),
        ),
    };
    raise(&mut most, &in_force);
    if !infeasible {
        raise(&mut most, &wished(pod, defaults));
    }
    most
}

/// What a pod's containers come to, each taken as `pick` says: their sum, or the init containers' peak where that is more
/// (KEP-753).
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
        raise(&mut peak, &needed);
    }
    raise(&mut total, &peak);
    total
}

/// Replaces the containers' sums by the pod-level resources.
pub(crate) fn replace_pod_level<'a>(total: &mut Amounts<'a>, whole: Amounts<'a>) {
    for (name, amount) in whole.into_iter().filter(|(name, _)| pod_level(name)) {
        total.retain(|(own, _)| *own != name);
        total.push((name, amount));
    }
}

/// Returns the amounts with `defaults` for missing ones.
fn filled<'a>(mut amounts: Amounts<'a>, defaults: &Defaults) -> Amounts<'a> {
    for (name, amount) in defaults {
        if !amounts.iter().any(|(own, _)| own == name) {
            amounts.push((name, *amount));
        }
    }
    amounts
}

/// The entries of a map.
pub fn amounts(map: &Map<Quantity>) -> Amounts<'_> {
    map.iter().map(|(name, amount)| (name, *amount)).collect()
}

/// Which resources may be set for a pod as a whole (KEP-2837).
pub(crate) fn pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Adds amounts by name.
pub(crate) fn add<'a>(to: &mut Amounts<'a>, more: &[(&'a str, Quantity)]) {
    for (name, amount) in more {
        match to.iter_mut().find(|(own, _)| own == name) {
            Some((_, sum)) => *sum = sum.plus(*amount),
            None => to.push((name, *amount)),
        }
    }
}

/// Raises each amount to at least that of `least`.
pub(crate) fn raise<'a>(to: &mut Amounts<'a>, least: &[(&'a str, Quantity)]) {
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
    use crate::{Encoding, View};

    fn cpu(spec: &str, defaults: &Defaults) -> Option<i64> {
        let body = format!(r#"{{"metadata":{{"name":"p"}},"spec":{spec}}}"#);
        let pod = Pod::decode(body.as_bytes(), Encoding::Json).unwrap();
        of_pod(&pod, defaults)
            .iter()
            .find(|(name, _)| *name == "cpu")
            .map(|(_, amount)| amount.milli_value())
    }

    #[test]
    fn what_a_pod_asks_for() {
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
            ("nothing", spec("", r#"{"name":"c"}"#, ""), None),
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
    /// Kubernetes asks for the most of what is wished, set aside and in force, over the whole pod.
    #[test]
    fn what_a_pod_asks_for_while_it_is_resized() {
        let pod = |wished: &str, status: &str, more: &str| {
            let body = format!(
                r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{wished}"}}}}}}]{more}}},
                "status":{status}}}"#
            );
            let pod = Pod::decode(body.as_bytes(), Encoding::Json).unwrap();
            let total = of_pod(&pod, &[]);
            total.iter().find(|(name, _)| *name == "cpu").map(|(_, amount)| amount.milli_value())
        };
        let container = |set_aside: &str, in_force: &str| {
            format!(
                r#"{{"containerStatuses":[{{"name":"c","allocatedResources":{{"cpu":"{set_aside}"}},"resources":{{"requests":{{"cpu":"{in_force}"}}}}}}]}}"#
            )
        };
        assert_eq!(pod("3", &container("1", "2"), ""), Some(3000));
        assert_eq!(pod("1", &container("3", "2"), ""), Some(3000));
        assert_eq!(pod("1", &container("2", "3"), ""), Some(3000));
        let never =
            r#","conditions":[{"type":"PodResizePending","status":"True","reason":"Infeasible"}]}"#;
        let mut status = container("1", "2");
        status.truncate(status.len() - 1);
        assert_eq!(pod("9", &format!("{status}{never}"), ""), Some(2000));
        let whole = r#"{"allocatedResources":{"cpu":"5"},"resources":{"requests":{"cpu":"4"}}}"#;
        let level = r#","resources":{"requests":{"cpu":"2"}}"#;
        assert_eq!(pod("1", whole, level), Some(5000));
    }
}
