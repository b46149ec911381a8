//! Places for expressions: the request that contains many of them, and the part of the response about each.

use serde_json::{Value, json};

use crate::generate::{Generated, Scope, generated};
use crate::grammar::Kind;
use crate::parity::servers::{Answer, Sent};
use crate::scopes::{DEVICE, REQUEST, VALUE};

/// A place for expressions.
pub(crate) struct ExpressionField {
    pub(crate) name: &'static str,
    /// Expressions of one request.
    pub(crate) count: usize,
    scope: &'static Scope,
    kind: Kind,
    /// JSON around an expression; `$e` is the placeholder of the expression.
    form: &'static str,
    path: &'static str,
    body: fn(&[Generated]) -> Value,
    /// The part of a field's path that names an expression; `$i` is the placeholder of its index.
    field: &'static str,
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies?dryRun=All";
const WEBHOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses?dryRun=All";

/// Fields with expressions that are compared.
pub(crate) static PLACES: [ExpressionField; 12] = [
    place("rule", 40, &VALUE, "bool", "$e", DEFINITIONS, rules, "properties[p$i]."),
    place(
        "rule of a result",
        40,
        &VALUE,
        "any",
        "type($e) == int || [$e].size() > 0",
        DEFINITIONS,
        rules,
        "properties[p$i].",
    ),
    place("rule of a number", 40, &VALUE, "int", "$e > 0", DEFINITIONS, rules, "properties[p$i]."),
    place("message", 40, &VALUE, "string", "$e", DEFINITIONS, messages, "properties[p$i]."),
    place("validation", 40, &REQUEST, "bool", "$e", VALIDATING, validations, "validations[$i]."),
    place(
        "message of a validation",
        40,
        &REQUEST,
        "string",
        "$e",
        VALIDATING,
        validation_messages,
        "validations[$i].",
    ),
    place("variable", 40, &REQUEST, "any", "$e", VALIDATING, variables, "variables[$i]."),
    place("condition", 40, &REQUEST, "bool", "$e", VALIDATING, conditions, "matchConditions[$i]."),
    place(
        "annotation",
        20,
        &REQUEST,
        "string",
        "$e",
        VALIDATING,
        annotations,
        "auditAnnotations[$i].",
    ),
    place(
        "patch",
        40,
        &REQUEST,
        "any",
        "[JSONPatch{op: 'add', path: '/a', value: $e}]",
        MUTATING,
        patches,
        "mutations[$i].",
    ),
    place("webhook", 40, &REQUEST, "bool", "$e", WEBHOOKS, webhooks, "matchConditions[$i]."),
    place("device", 30, &DEVICE, "bool", "$e", CLASSES, classes, "selectors[$i]."),
];

#[expect(clippy::too_many_arguments, reason = "a row of a table")]
const fn place(
    name: &'static str,
    count: usize,
    scope: &'static Scope,
    kind: Kind,
    form: &'static str,
    path: &'static str,
    body: fn(&[Generated]) -> Value,
    field: &'static str,
) -> ExpressionField {
    ExpressionField { name, count, scope, kind, form, path, body, field }
}

impl ExpressionField {
    /// Returns the expression of a seed.
    pub(crate) fn generated(&self, seed: u64) -> Generated {
        let generated = generated(seed, self.scope, self.kind);
        Generated { source: self.form.replace("$e", &generated.source), ..generated }
    }

    pub(crate) fn sent(&self, expressions: &[Generated]) -> Sent {
        Sent::post(self.path, (self.body)(expressions))
    }

    /// Returns the part of a response about each expression.
    pub(crate) fn said(&self, answer: &Answer, count: usize) -> Vec<Value> {
        (0..count).map(|i| said(answer, &self.field.replace("$i", &i.to_string()))).collect()
    }
}

/// Returns the causes of a response about a field: the code, and the messages.
pub(crate) fn said(answer: &Answer, field: &str) -> Value {
    let causes = answer.body["details"]["causes"].as_array();
    let Some(causes) = causes else {
        let code = answer.code;
        let text = if code < 300 { Value::Null } else { answer.body["message"].clone() };
        return json!({"code": code, "text": text});
    };
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let mut about: Vec<String> = causes
        .iter()
        .filter(|cause| text(cause, "field").contains(field))
        // The sum of the costs is that of all expressions of the request.
        .filter(|cause| {
            !text(cause, "message").contains("contributed to estimated rule cost total")
        })
        .map(|cause| format!("{}: {}", text(cause, "field"), unnamed(&text(cause, "message"))))
        .collect();
    about.sort_unstable();
    let code = if about.is_empty() { 201 } else { 422 };
    json!({"code": code, "text": about})
}

/// Masks the number in a type's name, because upstream generates a new one each time.
fn unnamed(text: &str) -> String {
    let mut parts = text.split("selfType");
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        masked.push_str("selfType");
        masked.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    masked
}

/// Returns the schema of the values that rules read.
pub(crate) fn value_schema() -> Value {
    let text = json!({"type": "string", "maxLength": 12});
    let number = json!({"type": "integer"});
    let numbers = json!({"type": "array", "maxItems": 6, "items": number});
    json!({"type": "object", "properties": {
        "s": text, "n": number, "d": {"type": "number"}, "b": {"type": "boolean"}, "li": numbers,
        "ls": {"type": "array", "maxItems": 6, "items": text},
        "ms": {"type": "object", "maxProperties": 6, "additionalProperties": text},
        "mi": {"type": "object", "maxProperties": 6, "additionalProperties": number},
        "o": {"type": "object", "properties": {"s": text, "n": number, "deep": {"type": "object", "properties": {"x": number}}}},
        "lo": {"type": "array", "maxItems": 4, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": text, "v": number}}},
        "st": {"type": "array", "maxItems": 4, "x-kubernetes-list-type": "set", "items": number},
        "t": {"type": "string", "format": "date-time"}, "day": {"type": "string", "format": "date"},
        "du": {"type": "string", "format": "duration"}, "by": {"type": "string", "format": "byte", "maxLength": 12},
        "io": {"x-kubernetes-int-or-string": true, "maxLength": 8}, "un": {"type": "string"},
        "ul": {"type": "array", "items": {"type": "string"}}, "a-b": text, "namespace": text,
        "e": {"type": "string", "enum": ["one", "three"]},
    }})
}

/// Returns a CustomResourceDefinition with a property for each of these rules.
pub(crate) fn definition(name: &str, rules: impl IntoIterator<Item = (String, Value)>) -> Value {
    let properties: serde_json::Map<String, Value> = rules
        .into_iter()
        .map(|(property, rule)| {
            let mut schema = value_schema();
            schema["x-kubernetes-validations"] = json!([rule]);
            (property, schema)
        })
        .collect();
    json!({"metadata": {"name": format!("{name}s.expressions.example.com")}, "spec": {
        "group": "expressions.example.com", "scope": "Cluster",
        "names": {"plural": format!("{name}s"), "singular": name, "kind": format!("K{name}"), "listKind": format!("K{name}List")},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": properties},
        }}}}],
    }})
}

fn rules(expressions: &[Generated]) -> Value {
    let rule = |(i, one): (usize, &Generated)| {
        let rule = json!({"rule": one.source, "message": "no"});
        (format!("p{i}"), rule)
    };
    definition("rule", expressions.iter().enumerate().map(rule))
}

fn messages(expressions: &[Generated]) -> Value {
    let rule = |(i, one): (usize, &Generated)| {
        let rule = json!({"rule": "self.b", "messageExpression": one.source});
        (format!("p{i}"), rule)
    };
    definition("message", expressions.iter().enumerate().map(rule))
}

fn constraints() -> Value {
    json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]})
}

/// Returns a policy with a few variables and these fields.
fn policy(fields: Value) -> Value {
    let mut spec = json!({"matchConstraints": constraints(),
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "true"}],
        "variables": [{"name": "flag", "expression": "true"}, {"name": "count", "expression": "1 + 1"},
            {"name": "text", "expression": "'a'"}, {"name": "list", "expression": "[1, 2]"}]});
    if let (Some(spec), Value::Object(fields)) = (spec.as_object_mut(), fields) {
        spec.extend(fields);
    }
    json!({"metadata": {"name": "generated"}, "spec": spec})
}

fn each(expressions: &[Generated], make: impl Fn(usize, &str) -> Value) -> Vec<Value> {
    expressions.iter().enumerate().map(|(i, one)| make(i, &one.source)).collect()
}

fn validations(expressions: &[Generated]) -> Value {
    policy(
        json!({"validations": each(expressions, |_, text| json!({"expression": text, "message": "no"}))}),
    )
}

fn validation_messages(expressions: &[Generated]) -> Value {
    policy(
        json!({"validations": each(expressions, |_, text| json!({"expression": "true", "messageExpression": text}))}),
    )
}

fn variables(expressions: &[Generated]) -> Value {
    policy(
        json!({"variables": each(expressions, |i, text| json!({"name": format!("v{i}"), "expression": text}))}),
    )
}

fn conditions(expressions: &[Generated]) -> Value {
    policy(
        json!({"matchConditions": each(expressions, |i, text| json!({"name": format!("c{i}"), "expression": text}))}),
    )
}

fn annotations(expressions: &[Generated]) -> Value {
    policy(
        json!({"auditAnnotations": each(expressions, |i, text| json!({"key": format!("k{i}"), "valueExpression": text}))}),
    )
}

fn patches(expressions: &[Generated]) -> Value {
    let mutations = each(
        expressions,
        |_, text| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}}),
    );
    let mut policy = policy(
        json!({"mutations": mutations, "reinvocationPolicy": "Never", "failurePolicy": "Fail"}),
    );
    if let Some(spec) = policy["spec"].as_object_mut() {
        spec.remove("validations");
    }
    policy
}

fn webhooks(expressions: &[Generated]) -> Value {
    let conditions =
        each(expressions, |i, text| json!({"name": format!("c{i}"), "expression": text}));
    json!({"metadata": {"name": "generated"}, "webhooks": [{"name": "a.example.com", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://localhost:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "matchConditions": conditions}]})
}

fn classes(expressions: &[Generated]) -> Value {
    let selectors = each(expressions, |_, text| json!({"cel": {"expression": text}}));
    json!({"metadata": {"name": "generated"}, "spec": {"selectors": selectors}})
}
