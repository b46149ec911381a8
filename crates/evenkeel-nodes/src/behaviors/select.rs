//! Selection of the Behaviors that apply to a pod, and of the values that they set.

use evenkeel_api::{
    StrMap,
    quantity::Quantity,
    time::Timestamp,
    views::{Node, Pod},
};
use std::{cmp::Reverse, sync::Arc, time::Duration};

use super::{
    draw::{self, Unit},
    spec::Behavior,
};
use crate::{
    annotations::{self, CPU, CPU_LOAD, MEMORY},
    behaviour::{Failure, Script, image_of},
};

/// Length of a day in seconds.
const DAY_SECONDS: i64 = 86_400;

/// Sorts Behaviors by ascending precedence: by weight, and for equal weights by name in reverse alphabetical order.
pub(crate) fn sort(behaviors: &mut [Arc<Behavior>]) {
    behaviors.sort_by(|one, two| {
        (one.weight, Reverse(&one.name)).cmp(&(two.weight, Reverse(&two.name)))
    });
}

/// Returns whether a Behavior selects a pod. `namespace` and `node` are the labels of the pod's namespace and node.
/// Without them, only a selector that selects everything matches.
pub(crate) fn selects(
    behavior: &Behavior,
    pod: &Pod,
    namespace: Option<&StrMap>,
    node: Option<&StrMap>,
) -> bool {
    selects_somewhere(behavior, pod, namespace)
        && behavior.nodes.matches(node.unwrap_or(&StrMap::default()))
}

/// Returns whether a Behavior selects a pod on at least one possible node.
fn selects_somewhere(behavior: &Behavior, pod: &Pod, namespace: Option<&StrMap>) -> bool {
    let in_namespace = behavior.namespaces.is_empty()
        || behavior.namespaces.iter().any(|name| **name == *pod.meta.namespace);
    in_namespace
        && behavior.pods.matches(&pod.meta.labels)
        && behavior.namespace_selector.matches(namespace.unwrap_or(&StrMap::default()))
}

/// Returns whether a Behavior sets the usage of a container of a pod on at least one possible node. `namespace` has the
/// labels of the pod's namespace.
pub(crate) fn sets_usage(behavior: &Behavior, pod: &Pod, namespace: Option<&StrMap>) -> bool {
    let is_of_usage = |name: &str| [CPU, CPU_LOAD, MEMORY].contains(&name);
    let sets_usage = behavior.values.iter().any(|(name, _)| is_of_usage(name))
        || behavior.curves.iter().any(|(name, _)| is_of_usage(name));
    sets_usage && selects_somewhere(behavior, pod, namespace)
}

/// Returns the Behaviors that select a node, in their order.
pub(crate) fn selecting_node(behaviors: &[Arc<Behavior>], node: &Node) -> Vec<Arc<Behavior>> {
    let selected = behaviors.iter().filter(|behavior| behavior.nodes.matches(&node.meta.labels));
    selected.cloned().collect()
}

/// Applies Behaviors to the run of a container. The Behaviors select the container's pod, and are sorted.
pub(crate) fn apply(
    behaviors: &[Arc<Behavior>],
    pod: &Pod,
    container: &str,
    mut script: Script,
) -> Script {
    for behavior in of_container(behaviors, pod, container) {
        for (name, value) in &behavior.values {
            let Some(annotation) = annotations::of_pod(name) else { continue };
            let hash = hash(behavior, pod, container, name);
            if let Ok(value) = draw::resolve(value, Unit::of(annotation), hash) {
                // A valid Behavior has only valid values.
                let _ = (annotation.apply)(&mut script, &value);
            }
        }
        if let Some(rate) = behavior.failure_rate {
            let hash = hash(behavior, pod, container, "failureRate");
            script.failure = Some(Failure { rate, hash });
        }
    }
    script
}

/// Returns the usage that these Behaviors set for a container, by the name of the corresponding annotation.
pub(crate) fn usage(
    behaviors: &[Arc<Behavior>],
    pod: &Pod,
    container: &str,
    key: &str,
    now: Timestamp,
) -> Option<Quantity> {
    of_container(behaviors, pod, container).rev().find_map(|behavior| {
        if let Some((_, curve)) = behavior.curves.iter().find(|(name, _)| *name == key) {
            let start = pod.status.start_time.unwrap_or(now);
            let since_start = Duration::try_from(now.duration_since(start)).unwrap_or_default();
            let seconds = now.as_second().rem_euclid(DAY_SECONDS).unsigned_abs();
            let value = curve.value(Duration::from_secs(seconds), since_start);
            return Some(Quantity::from_millis(value));
        }
        let (name, value) = behavior.values.iter().find(|(name, _)| *name == key)?;
        let hash = hash(behavior, pod, container, name);
        let value = draw::resolve(value, Some(Unit::Quantity), hash).ok()?;
        Quantity::parse(&value).ok()
    })
}

/// Iterates over the Behaviors that apply to a container of a pod.
fn of_container<'a>(
    behaviors: &'a [Arc<Behavior>],
    pod: &'a Pod,
    container: &'a str,
) -> impl DoubleEndedIterator<Item = &'a Behavior> {
    let applies = move |behavior: &&Behavior| {
        (behavior.containers.is_empty() || behavior.containers.iter().any(|name| name == container))
            && (behavior.images.is_empty()
                || image_of(pod, container).is_some_and(|image| has_image(behavior, image)))
    };
    behaviors.iter().map(|behavior| &**behavior).filter(applies)
}

/// Returns whether a Behavior names the image. A `*` at the end of a named image matches any suffix.
fn has_image(behavior: &Behavior, image: &str) -> bool {
    behavior.images.iter().any(|named| match named.strip_suffix('*') {
        Some(prefix) => image.starts_with(prefix),
        None => image == named,
    })
}

/// Returns the hash of the draws for a field of a container. A pod with the same name gets the same draws.
fn hash(behavior: &Behavior, pod: &Pod, container: &str, field: &str) -> u64 {
    let names = [&*pod.meta.namespace, &*pod.meta.name, container, field];
    draw::hash(behavior.seed, &names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delays, behaviors::spec::parse, behaviour::defaults};
    use evenkeel_api::{Encoding, View};
    use serde_json::{Value, json};

    fn behavior(name: &str, spec: &Value) -> Arc<Behavior> {
        Arc::new(parse(name, spec).expect("valid"))
    }

    fn pod(name: &str) -> Pod {
        let pod = json!({
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
            "status": {"startTime": "2027-01-15T08:00:00Z"},
        });
        Pod::decode(pod.to_string().as_bytes(), Encoding::Json).expect("a pod")
    }

    fn script(behaviors: &[Arc<Behavior>], pod: &Pod, container: &str) -> Script {
        apply(behaviors, pod, container, defaults(&Delays::default(), None))
    }

    #[test]
    fn containers_are_selected_by_their_images() {
        let containers = json!({"spec": {
            "initContainers": [{"name": "i", "image": "registry.example.com/tools/wait:1"}],
            "containers": [{"name": "a", "image": "registry.example.com/app:2"}, {"name": "b"}],
        }});
        let pod = Pod::decode(containers.to_string().as_bytes(), Encoding::Json).expect("a pod");
        for (images, want) in [
            (json!([]), [true, true, true]),
            (json!(["registry.example.com/app:2"]), [false, true, false]),
            (json!(["registry.example.com/app"]), [false, false, false]),
            (json!(["registry.example.com/*"]), [true, true, false]),
            (json!(["x", "registry.example.com/tools/*"]), [true, false, false]),
            (json!(["*"]), [true, true, true]),
        ] {
            let behaviors = [behavior("b", &json!({"images": images, "imagePullTime": "7s"}))];
            let found = ["i", "a", "b"].map(|name| {
                script(&behaviors, &pod, name).pull.duration() == Duration::from_secs(7)
            });
            assert_eq!(found, want, "{images}");
        }
    }

    #[test]
    fn pods_are_selected_by_labels_namespaces_and_nodes() {
        let labels = |key: &str| -> StrMap { [(key.to_owned(), "yes")].into_iter().collect() };
        let (team, pool) = (labels("team"), labels("pool"));
        let has = |key: &str| json!({"matchLabels": {key: "yes"}});
        for (spec, want) in [
            (json!({}), true),
            (json!({"pods": {"selector": {"matchLabels": {"app": "web"}}}}), true),
            (json!({"pods": {"selector": {"matchLabels": {"app": "db"}}}}), false),
            (json!({"pods": {"namespaces": ["a", "shop"]}}), true),
            (json!({"pods": {"namespaces": ["a"]}}), false),
            (json!({"pods": {"namespaceSelector": has("team")}}), true),
            (json!({"pods": {"namespaceSelector": has("pool")}}), false),
            (json!({"nodes": {"selector": has("pool")}}), true),
            (json!({"nodes": {"selector": has("team")}}), false),
        ] {
            let behavior = behavior("b", &spec);
            let found = selects(&behavior, &pod("a"), Some(&team), Some(&pool));
            assert_eq!(found, want, "{spec}");
        }
        let of_node = behavior("b", &json!({"nodes": {"selector": has("pool")}}));
        assert!(!selects(&of_node, &pod("a"), None, None), "the node is unknown");
    }

    #[test]
    fn weight_and_name_decide_which_value_holds() {
        let exits = |name: &str, weight: i64, code: i32| {
            behavior(name, &json!({"weight": weight, "exitCode": code}))
        };
        for (mut behaviors, want) in [
            (vec![exits("a", 0, 1), exits("b", 1, 2)], 2),
            (vec![exits("b", 1, 2), exits("a", 0, 1)], 2),
            (vec![exits("b", 0, 2), exits("a", 0, 1)], 1),
            (vec![exits("a", -1, 1), exits("b", 0, 2)], 2),
        ] {
            sort(&mut behaviors);
            assert_eq!(script(&behaviors, &pod("p"), "c").exit_code, want);
        }
    }

    #[test]
    fn a_behavior_changes_the_named_containers_only() {
        let behaviors = [behavior("b", &json!({"containers": ["app"], "runTime": "5s"}))];
        let pod = pod("p");
        assert_eq!(script(&behaviors, &pod, "app").run_time, Some(Duration::from_secs(5)));
        assert_eq!(script(&behaviors, &pod, "log"), defaults(&Delays::default(), None));
    }

    #[test]
    fn draws_depend_on_seed_and_names() {
        let drawn = |seed: u64, pod_name: &str| {
            let behaviors = [behavior("b", &json!({"seed": seed, "startDelay": "0s..1h"}))];
            script(&behaviors, &pod(pod_name), "c").start_delay
        };
        assert_eq!(drawn(1, "a"), drawn(1, "a"));
        assert_ne!(drawn(1, "a"), drawn(1, "b"));
        assert_ne!(drawn(1, "a"), drawn(2, "a"));
        assert!(drawn(1, "a") <= Duration::from_secs(3600));
    }

    #[test]
    fn usage_is_a_value_or_a_point_of_a_curve() {
        let curve = json!([{"at": "0", "value": "100m"}, {"at": "10m", "value": "300m"}]);
        let mut behaviors = vec![
            behavior("curve", &json!({"weight": 1, "cpuCurve": curve, "containers": ["app"]})),
            behavior("value", &json!({"cpu": "2", "memory": "64Mi"})),
        ];
        sort(&mut behaviors);
        let at = |minute: i64| Timestamp::from_second(1_800_000_000 + 60 * minute).unwrap();
        let milli = |container: &str, key: &str, minute: i64| {
            let usage = usage(&behaviors, &pod("p"), container, key, at(minute));
            usage.map(Quantity::milli_value)
        };
        assert_eq!(milli("app", annotations::CPU, 5), Some(200));
        assert_eq!(milli("app", annotations::CPU, 60), Some(300));
        assert_eq!(milli("log", annotations::CPU, 5), Some(2000));
        assert_eq!(milli("log", annotations::MEMORY, 5), Some((64 << 20) * 1000));
        assert_eq!(milli("log", annotations::CPU_LOAD, 5), None);
    }
}
