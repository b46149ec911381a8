//! Finds pods whose usage is set by annotations or Behaviors.

use evenkeel_api::{StrMap, views::Pod};
use serde_json::Value;

use crate::{
    annotations::{CPU, CPU_LOAD, MEMORY},
    behaviors::{Behavior, parse_object, sets_usage},
    behaviour::annotated_usage,
};

/// Decides whether a pod's usage is set by annotations or Behaviors. The default, half of the pod's requests, is only a
/// guess.
#[derive(Debug)]
pub struct KnownUsage(Vec<Behavior>);

impl KnownUsage {
    /// Returns the decision with these Behavior objects of the API server. Invalid Behaviors have no effect.
    pub fn of_objects<'a>(behaviors: impl IntoIterator<Item = &'a Value>) -> Self {
        Self(behaviors.into_iter().filter_map(parse_object).collect())
    }

    /// Returns whether an annotation of the pod, or a Behavior on at least one possible node, sets the CPU or memory
    /// usage of one of its containers. `namespace` has the labels of the pod's namespace.
    pub fn includes(&self, pod: &Pod, namespace: Option<&StrMap>) -> bool {
        let is_annotated = |container: &str| {
            [CPU, CPU_LOAD, MEMORY]
                .iter()
                .any(|key| annotated_usage(&pod.meta.annotations, key, container).is_some())
        };
        pod.spec.containers.iter().any(|container| is_annotated(&container.name))
            || self.0.iter().any(|behavior| sets_usage(behavior, pod, namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View as _};
    use serde_json::json;

    #[test]
    fn usage_is_known_by_annotations_and_behaviors() {
        let team: StrMap = [("team", "a")].into_iter().collect();
        let behavior = |spec: Value| json!({"metadata": {"name": "b"}, "spec": spec});
        let of_web = json!({"selector": {"matchLabels": {"app": "web"}}});
        let of_team = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
        let curve = json!([{"at": "0", "value": "1"}]);
        for (annotations, behaviors, want) in [
            (json!({}), vec![], false),
            (json!({"sim.evenkeel.dev/cpu-load": "1500m"}), vec![], true),
            (json!({"sim.evenkeel.dev/memory": "other=1Gi"}), vec![], false),
            (json!({"sim.evenkeel.dev/cpu": "much"}), vec![], false),
            (json!({"sim.evenkeel.dev/start-delay": "1s"}), vec![], false),
            (json!({}), vec![behavior(json!({"pods": of_web, "cpu": "1..2"}))], true),
            (json!({}), vec![behavior(json!({"pods": of_team, "memoryCurve": curve}))], true),
            (json!({}), vec![behavior(json!({"pods": of_web, "startDelay": "1s"}))], false),
            (json!({}), vec![behavior(json!({"pods": of_web, "cpu": "much"}))], false),
            (json!({}), vec![behavior(json!({"pods": {"namespaces": ["x"]}, "cpu": "1"}))], false),
            // The pod has no node yet.
            (
                json!({}),
                vec![behavior(json!({
                    "nodes": {"selector": {"matchLabels": {"pool": "p"}}}, "cpu": "1"
                }))],
                true,
            ),
        ] {
            let pod = json!({
                "metadata": {"namespace": "shop", "labels": {"app": "web"}, "annotations": annotations},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            });
            let pod = Pod::decode(pod.to_string().as_bytes(), Encoding::Json).unwrap();
            let known = KnownUsage::of_objects(&behaviors);
            assert_eq!(known.includes(&pod, Some(&team)), want, "{annotations} {behaviors:?}");
        }
    }
}
