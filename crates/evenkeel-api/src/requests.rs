//! What a pod asks of its node, summed over its containers as kubelet and scheduler do
//! (`k8s.io/component-helpers/resource`).

use crate::{
    map::Map,
    quantity::Quantity,
    views::{Container, ContainerStatus, Pod},
};

/// Resource names and amounts, each name once, in no particular order.
pub type Amounts<'a> = Vec<(&'a str, Quantity)>;

/// What containers are taken to ask for that do not say; for scores only.
pub type Defaults = [(&'static str, Quantity)];

/// The requests of a whole pod: the containers' sum, or what the init containers need at their peak if that is more
/// (sidecars run on beside everything after them), the pod-level figures in place of them, and the overhead on top.
pub fn of_pod<'a>(pod: &'a Pod, defaults: &Defaults) -> Amounts<'a> {
    let mut total = aggregate(pod, |container, status| of_container(container, status, defaults));
    if let Some(whole) = &pod.spec.resources {
        replace_pod_level(&mut total, &whole.requests);
    }
    for (name, amount) in pod.spec.overhead.iter() {
        add(&mut total, &[(name, *amount)]);
    }
    total
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

/// Puts what is set for the pod as a whole in the place of the containers' figures.
pub(crate) fn replace_pod_level<'a>(total: &mut Amounts<'a>, whole: &'a Map<Quantity>) {
    for (name, amount) in whole.iter().filter(|(name, _)| pod_level(name)) {
        total.retain(|(own, _)| *own != name);
        total.push((name, *amount));
    }
}

/// A container's requests; during an in-place resize the most of what is wished, set aside and in force.
fn of_container<'a>(
    container: &'a Container,
    status: Option<&'a ContainerStatus>,
    defaults: &Defaults,
) -> Amounts<'a> {
    let mut amounts = amounts(&container.resources.requests);
    if let Some(status) = status {
        raise(&mut amounts, &self::amounts(&status.allocated_resources));
        if let Some(in_force) = &status.resources {
            raise(&mut amounts, &self::amounts(&in_force.requests));
        }
    }
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

/// Makes each amount at least what `least` has.
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
}
