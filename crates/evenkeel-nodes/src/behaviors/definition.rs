//! The CustomResourceDefinition of Behaviors, derived from the table of annotations.

use serde_json::{Map, Value, json};

use super::{
    GROUP, KIND, PLURAL, VERSION,
    draw::Unit,
    spec::{CURVES, field, node_fault_kinds},
};
use crate::annotations;

/// Name of the CustomResourceDefinition of Behaviors.
pub const BEHAVIOR_DEFINITION: &str = "behaviors.sim.evenkeel.dev";

/// Returns the CustomResourceDefinition of Behaviors.
pub fn behavior_definition() -> Value {
    let selector = |objects: &str| {
        json!({
            "type": "object", "description": format!("Selector of the labels of {objects}. Default: all."),
            "properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                "matchExpressions": {"type": "array", "items": {
                    "type": "object", "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"}, "operator": {"type": "string"},
                        "values": {"type": "array", "items": {"type": "string"}},
                    },
                }},
            },
        })
    };
    let names = |description: &str| json!({"type": "array", "items": {"type": "string"}, "description": description});
    let number = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let value =
        |description: &str| json!({"x-kubernetes-int-or-string": true, "description": description});
    let mut fields = Map::new();
    for annotation in annotations::of_pods() {
        // Values that are words have no range.
        let range = Unit::of(annotation).map_or("", |_| ", or a range such as LOW..HIGH");
        let description = format!(
            "{}{range}: {}. Default: {}.",
            annotation.values, annotation.meaning, annotation.default
        );
        fields.insert(field(annotation.name), value(&description));
    }
    for (name, annotation) in CURVES {
        let description = format!(
            "Points of a line for `{}`, ascending: times of day (UTC) such as 08:30, or since the pod's start such as 5m.",
            field(annotation)
        );
        let point = json!({
            "type": "object", "required": ["at", "value"],
            "properties": {"at": {"type": "string"}, "value": value("Quantity.")},
        });
        fields.insert(
            name.to_owned(),
            json!({"type": "array", "items": point, "description": description}),
        );
    }
    let kinds: Vec<&str> = node_fault_kinds().map(|(kind, _)| kind).collect();
    let mean = |description: &str| json!({"type": "string", "description": description});
    let fault = json!({
        "type": "object", "required": ["kind", "meanTimeBetweenFailures", "meanTimeToRepair"],
        "properties": {
            "kind": {"type": "string", "enum": kinds, "description": "Kind of the fault: the annotation of nodes that stands for it, which takes precedence, without its prefix."},
            "meanTimeBetweenFailures": mean("Mean time from the end of a fault to the begin of the next one, a duration such as 12h. At least 1s."),
            "meanTimeToRepair": mean("Mean time of a fault, a duration such as 10m. At least 1s."),
        },
    });
    let structure = json!({
        "suspend": {"type": "boolean", "description": "Whether the Behavior has no effect for now. Default: false."},
        "weight": number("Of several values for a container, that of the largest weight holds, then that of the first name. Default: 0."),
        "seed": number("Seed of the draws from ranges and of failures. They depend on it and on namespace, name and container only. Default: 0."),
        "pods": {"type": "object", "description": "The pods whose containers behave so. Default: all.", "properties": {
            "selector": selector("pods"),
            "namespaces": names("Namespaces of the pods. Default: all."),
            "namespaceSelector": selector("the pods' namespaces"),
        }},
        "nodes": {"type": "object", "description": "The nodes on which pods behave so, and which have the faults of `nodeFaults`. Default: all.", "properties": {
            "selector": selector("nodes"),
        }},
        "nodeFaults": {"type": "array", "items": fault, "description": "Faults that the nodes have from time to time, each kind at most once. Times are drawn by the seed, the node's name and the kind, exponentially distributed, and count from the Behavior's creation. The nodes have no fault then."},
        "containers": names("Names of the containers. Default: all."),
        "images": names("Images of the containers; at the end of one, `*` stands for anything. Default: all."),
        "failureRate": {"type": "string", "description": "Rate such as 5% of the runs of a container that fail, with exit code 1 unless `exitCode` sets another: when they would end, or a second after their start."},
    });
    if let Value::Object(structure) = structure {
        fields.extend(structure);
    }
    let condition = json!({
        "type": "object", "required": ["type", "status"],
        "properties": {
            "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
            "message": {"type": "string"}, "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": BEHAVIOR_DEFINITION},
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {"kind": KIND, "listKind": "BehaviorList", "plural": PLURAL, "singular": "behavior"},
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Weight", "type": "integer", "jsonPath": ".spec.weight"},
                    {"name": "Valid", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Valid\")].status"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "Behavior of the containers of simulated pods, and faults of simulated nodes. An annotation of a pod or node takes precedence.",
                    "properties": {
                        "spec": {"type": "object", "properties": fields},
                        "status": {"type": "object", "properties": {"conditions": {
                            "type": "array", "items": condition,
                            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                        }}},
                    },
                }},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_has_a_field_for_each_annotation_of_pods() {
        let definition = behavior_definition();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let fields = definition.pointer(spec).and_then(Value::as_object).expect("fields");
        for annotation in annotations::of_pods() {
            assert!(fields.contains_key(&field(annotation.name)), "{}", annotation.name);
        }
        assert_eq!(fields.len(), annotations::of_pods().count() + CURVES.len() + 9);
        assert_eq!(BEHAVIOR_DEFINITION, format!("{PLURAL}.{GROUP}"));
    }
}
