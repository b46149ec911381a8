//! CustomResourceDefinition of Stages, with the fields that KWOK's definition has.

use serde_json::{Value, json};

use super::{GROUP, KIND, PLURAL, VERSION};

/// Name of the CustomResourceDefinition of Stages.
pub const STAGE_DEFINITION: &str = "stages.kwok.x-k8s.io";

/// Returns the CustomResourceDefinition of KWOK's Stages.
pub fn stage_definition() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let number = |description: &str| json!({"type": "integer", "format": "int64", "minimum": 0, "description": description});
    let object = |description: &str, properties: Value| json!({"type": "object", "description": description, "properties": properties});
    let list = |items: Value| json!({"type": "array", "items": items});
    let strings = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let source =
        |language: &str| json!({"type": "object", "properties": {"expression": text(language)}});
    let from = |description: &str| {
        let fields = json!({
            "expressionFrom": text("Expression of jq. Deprecated: jq."),
            "jq": source("Expression of jq."), "cel": source("Expression of CEL, in which the object is self."),
        });
        object(description, fields)
    };
    let requirement = json!({
        "key": text("Expression of jq."), "operator": text("In, NotIn, Exists or DoesNotExist."),
        "values": list(json!({"type": "string"})),
    });
    let mut expression = requirement.clone();
    expression["jq"] = object("Requirement on an expression of jq.", requirement);
    expression["cel"] = source("Expression of CEL that is true for the object.");
    let selector = object(
        "The objects that the Stage selects. All requirements are to be met. Default: none.",
        json!({
            "matchLabels": strings, "matchAnnotations": strings,
            "matchExpressions": list(object("Requirement on an expression.", expression)),
        }),
    );
    let impersonation = json!({
        "type": "object", "description": "Not supported.", "required": ["username"],
        "properties": {"username": {"type": "string"}},
    });
    let event = object(
        "Event on the object.",
        json!({"type": text("Normal or Warning."), "reason": {"type": "string"}, "message": {"type": "string"}}),
    );
    let finalizer = list(json!({"type": "object", "properties": {"value": {"type": "string"}}}));
    let finalizers = object(
        "Changes of the finalizers.",
        json!({"add": finalizer, "remove": finalizer, "empty": {"type": "boolean"}}),
    );
    let patch = object(
        "Patch of the object.",
        json!({
            "subresource": text("Name of the patched subresource. Default: the object itself."),
            "root": text("Field that the template stands for. Default: the whole object."),
            "template": text("Go template of the patch, in YAML."),
            "type": {"type": "string", "enum": ["json", "merge", "strategic"]},
            "impersonation": impersonation,
        }),
    );
    let apply = object(
        "Not supported.",
        json!({
            "template": {"type": "string"}, "subresource": {"type": "string"},
            "type": {"type": "string", "enum": ["apply", "merge", "strategic"]}, "impersonation": impersonation,
        }),
    );
    let delete = json!({"type": "boolean", "description": "Whether the object is deleted, without a grace period."});
    let next = object(
        "What happens to the object: the event, finalizers, patches and the deletion in this order. Deprecated: steps.",
        json!({
            "event": event, "finalizers": finalizers, "delete": delete, "patches": list(patch.clone()),
            "statusTemplate": text("Go template of a patch of the status. Deprecated: patches."),
            "statusSubresource": {"type": "string", "default": "status"}, "statusPatchAs": impersonation,
        }),
    );
    let step = object(
        "Step.",
        json!({"event": event, "finalizers": finalizers, "delete": delete, "patch": patch, "apply": apply}),
    );
    let delay = object(
        "Time between the choice of the Stage and what happens.",
        json!({
            "durationMilliseconds": number("The delay. Default: 0."),
            "durationFrom": from("The delay, such as 5s, or the time at which it ends."),
            "jitterDurationMilliseconds": number("End of the range from the delay that a delay is drawn from."),
            "jitterDurationFrom": from("The same from an expression."),
        }),
    );
    let spec = json!({
        "type": "object", "required": ["resourceRef"],
        "properties": {
            "resourceRef": {
                "type": "object", "required": ["kind"],
                "properties": {"apiGroup": {"type": "string", "default": "v1"}, "kind": text("Pod or Node.")},
            },
            "selector": selector,
            "weight": {"type": "integer", "default": 0, "minimum": 0, "description": "Weight of the choice between several Stages that select the object."},
            "weightFrom": from("The weight from an expression."),
            "delay": delay, "next": next, "steps": list(step),
            "immediateNextStage": {"type": "boolean", "description": "Without effect: the next Stage is always chosen at once."},
        },
    });
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
        "metadata": {"name": STAGE_DEFINITION},
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {"kind": KIND, "listKind": "StageList", "plural": PLURAL, "singular": "stage"},
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Resource", "type": "string", "jsonPath": ".spec.resourceRef.kind"},
                    {"name": "Weight", "type": "integer", "jsonPath": ".spec.weight"},
                    {"name": "Valid", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Valid\")].status"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "Stage of KWOK: how pods or nodes that it selects change next.",
                    "required": ["spec"],
                    "properties": {
                        "spec": spec,
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
