//! Decoding of a body as Go decodes it into a kind's struct and encodes that struct again.
//!
//! The result is canonical: empty optional fields are absent, required ones are present, and quantities and times
//! have one form. All code after decoding relies on that.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::json::Json;
use super::scalars;
use crate::schema::node::{Field, Rest, Shape, Struct, TypeRef};
use crate::value::is_omitted;

/// Lists and maps that validation refuses even when they are empty: Go's name of the type, and the field's JSON name.
const DIFFERS_WHEN_EMPTY: [(&str, &str); 4] = [
    ("v2.HPAScalingRules", "policies"),
    ("v1.ResourceSliceSpec", "devices"),
    ("v1.ResourceSliceSpec", "sharedCounters"),
    ("v1.JSONSchemaProps", "dependencies"),
];

/// Maximum number of strict decoding errors that are reported.
const MAX_STRICT_ERRORS: usize = 100;

/// Maximum total length in bytes of reported strict decoding errors. Each contains the path of its field, which may
/// be as long as the body.
const MAX_STRICT_BYTES: usize = 64 * 1024;

/// Returns whether one more strict decoding error is reported after these.
pub(crate) fn is_reported(errors: &[String]) -> bool {
    errors.len() < MAX_STRICT_ERRORS
        && errors.iter().map(String::len).sum::<usize>() < MAX_STRICT_BYTES
}

/// Errors of decoding one body.
#[derive(Debug, Default)]
pub(crate) struct DecodeErrors {
    /// Strict decoding errors in order: `unknown field "spec.x"`, `duplicate field "spec.y"`.
    pub strict: Vec<String>,
    /// Go's error for a value of a wrong type: the first error of a type that parses its own JSON (a time, a quantity),
    /// or else the first error.
    pub error: Option<String>,
}

/// Decoder of upstream whose error messages apply: the decoder of JSON, or that of unstructured objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum DecoderKind {
    #[default]
    Text,
    Unstructured,
}

/// Decodes `json` as a value of a type.
pub(crate) fn decode(json: &Json<'_>, type_ref: TypeRef<'_>) -> (Value, DecodeErrors) {
    decode_from(DecoderKind::Text, json, type_ref)
}

/// Decodes like [`decode`], with the error messages of this decoder.
pub(crate) fn decode_from(
    decoder: DecoderKind,
    json: &Json<'_>,
    type_ref: TypeRef<'_>,
) -> (Value, DecodeErrors) {
    let mut state = Decoder { decoder, ..Decoder::default() };
    let value = state.decode_value(json, type_ref);
    if decoder == DecoderKind::Unstructured {
        state.errors.strict.sort();
    }
    (value, state.errors)
}

/// Returns Go's encoding of the zero value of a type.
pub(crate) fn zero_value(type_ref: TypeRef<'_>) -> Value {
    match type_ref.shape() {
        Shape::Bool => Value::Bool(false),
        Shape::Int { .. } | Shape::Float | Shape::IntOrString => 0.into(),
        Shape::String => Value::String(String::new()),
        Shape::Duration => "0s".into(),
        Shape::Quantity => "0".into(),
        Shape::Struct(s) => {
            let mut object = Map::new();
            for field in s.fields.iter() {
                if let Some(value) = unset_value(field, type_ref) {
                    object.insert(field.name.to_string(), value);
                }
            }
            Value::Object(object)
        }
        Shape::Any
        | Shape::Raw
        | Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::Map { .. }
        | Shape::List { .. } => Value::Null,
    }
}

/// Replaces empty lists and maps by null, as upstream's storage encoding does. Decoding has already removed empty
/// fields with `omitempty`.
pub(crate) fn null_empty(value: &mut Value, type_ref: TypeRef<'_>) {
    match (type_ref.shape(), value) {
        (Shape::List { .. } | Shape::Map { .. }, value) if is_omitted(value) => {
            *value = Value::Null;
        }
        (Shape::Struct(s), Value::Object(entries)) => {
            for (key, value) in entries {
                if !matches!(value, Value::Array(_) | Value::Object(_)) {
                    continue;
                }
                // An empty list of managed fields resets them. Validation refuses the other empty lists later.
                let keeps_empty_list =
                    matches!(&**key, "managedFields" | "finalizers" | "ownerReferences")
                        || DIFFERS_WHEN_EMPTY.contains(&(&*type_ref.node().go, &**key));
                if let Some(field) = s.field(key).filter(|_| !keeps_empty_list) {
                    null_empty(value, type_ref.to(field.node));
                }
            }
        }
        (Shape::Map { value, .. }, Value::Object(entries)) => {
            let type_ref = type_ref.to(*value);
            if matches!(type_ref.shape(), Shape::Struct(_)) {
                entries.values_mut().for_each(|value| null_empty(value, type_ref));
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            let type_ref = type_ref.to(*item);
            if matches!(type_ref.shape(), Shape::Struct(_)) {
                items.iter_mut().for_each(|value| null_empty(value, type_ref));
            }
        }
        _ => {}
    }
}

/// Returns Go's encoding of an unset field by name; `None` if Go omits it.
pub(crate) fn unset_field(type_ref: TypeRef<'_>, field: &str) -> Option<Value> {
    unset_value(type_ref.as_struct()?.field(field)?, type_ref)
}

/// Returns Go's encoding of an unset field; `None` if Go omits it.
fn unset_value(field: &Field, owner: TypeRef<'_>) -> Option<Value> {
    if field.pointer {
        return (!field.omit_empty).then_some(Value::Null);
    }
    let type_ref = owner.to(field.node);
    // The zero value of these types is empty.
    let is_empty = matches!(
        type_ref.shape(),
        Shape::Bool
            | Shape::Int { .. }
            | Shape::Float
            | Shape::String
            | Shape::Bytes
            | Shape::Map { .. }
            | Shape::List { .. }
    );
    if is_empty && field.omit_empty {
        return None;
    }
    unless_omitted(field, type_ref, zero_value(type_ref))
}

/// Returns the value; `None` if Go omits it.
fn unless_omitted(field: &Field, type_ref: TypeRef<'_>, value: Value) -> Option<Value> {
    let is_dropped = match type_ref.shape() {
        Shape::Struct(_)
        | Shape::Quantity
        | Shape::IntOrString
        | Shape::Duration
        | Shape::Any
        | Shape::Raw => false,
        Shape::Time | Shape::MicroTime => field.omit_zero && value.is_null(),
        _ => field.omit_empty && is_omitted(&value),
    };
    (!is_dropped).then_some(value)
}

/// Decoder of a typed object.
#[derive(Default)]
struct Decoder<'s> {
    decoder: DecoderKind,
    errors: DecodeErrors,
    /// Path of the current value, for strict decoding errors.
    path: String,
    /// Names of the struct fields on the path, for type errors.
    fields: Vec<&'s str>,
    /// Go type of the struct that has the current field.
    owner: &'s str,
    /// Whether the error is final, so that no later error replaces it.
    is_error_final: bool,
}

impl<'s> Decoder<'s> {
    /// Decodes a value as a type. Null becomes the zero value of the type, as in Go.
    fn decode_value(&mut self, json: &Json<'_>, type_ref: TypeRef<'s>) -> Value {
        if matches!(json, Json::Null) {
            return zero_value(type_ref);
        }
        match (type_ref.shape(), json) {
            (Shape::Any, Json::Null | Json::Bool(_) | Json::Object(_)) => json.to_value(),
            (Shape::Any, _) if &*type_ref.node().go == "v1.JSONSchemaPropsOrBool" => {
                let error = "boolean or JSON schema expected".to_owned();
                self.fail(scalars::ScalarError::Text(error), json, type_ref);
                Value::Null
            }
            (Shape::Any | Shape::Raw, _) => json.to_value(),
            (Shape::Struct(s), Json::Object(entries)) => self.decode_struct(entries, s, type_ref),
            (Shape::Map { value, .. }, Json::Object(entries)) => {
                self.decode_map(entries, type_ref.to(*value))
            }
            (Shape::List { item, .. }, Json::Array(items)) => {
                self.decode_list(items, type_ref.to(*item))
            }
            (Shape::Int { bits }, Json::Number(text))
                if self.decoder == DecoderKind::Unstructured
                    && let Some(number) = scalars::converted_int(text, *bits) =>
            {
                number.into()
            }
            (shape, _) => match scalars::read(shape, json) {
                Ok(value) => value,
                Err(problem) => {
                    self.fail(problem, json, type_ref);
                    zero_value(type_ref)
                }
            },
        }
    }

    fn decode_struct(
        &mut self,
        entries: &[(Cow<'_, str>, Json<'_>)],
        s: &'s Struct,
        type_ref: TypeRef<'s>,
    ) -> Value {
        let (mut slots, mut order) = collect_fields(entries, s);
        if self.decoder == DecoderKind::Unstructured {
            // That decoder reads the fields in the order of the struct.
            order.sort_by_key(|(index, _)| {
                index.and_then(|index| s.fields.get(index)).map_or(usize::MAX, |f| f.position)
            });
        }
        let outer = std::mem::replace(&mut self.owner, &type_ref.node().go);
        let mut unspecified = Vec::new();
        for (index, (key, json)) in order {
            let named = index.and_then(|index| s.fields.get(index).zip(slots.get_mut(index)));
            match (named, s.rest) {
                (Some((field, slot)), _) => match std::mem::replace(slot, Slot::Decoded(None)) {
                    Slot::Sent(json) => {
                        *slot = Slot::Decoded(self.decode_field(field, &json, type_ref));
                    }
                    // The first occurrence of the field was decoded with the values of all.
                    decoded => {
                        *slot = decoded;
                        self.report_strict("duplicate", key);
                    }
                },
                (None, Rest::Drop | Rest::DropInPreserved) => self.report_strict("unknown", key),
                (None, Rest::Keep) => {
                    unspecified.push((key.clone().into_owned(), json.to_value()));
                }
                (None, Rest::Typed(id)) => {
                    let value = self.decode_value(json, type_ref.to(id));
                    unspecified.push((key.clone().into_owned(), value));
                }
            }
        }
        self.owner = outer;
        let named = s.fields.iter().zip(slots).filter_map(|(field, slot)| {
            let value = match slot {
                Slot::Decoded(value) => value,
                Slot::Absent | Slot::Sent(_) => unset_value(field, type_ref),
            };
            Some((field.name.to_string(), value?))
        });
        Value::Object(named.chain(unspecified).collect())
    }

    /// Decodes a field of the struct `owner`. Returns `None` if Go omits the value.
    fn decode_field(
        &mut self,
        field: &'s Field,
        json: &Json<'_>,
        owner: TypeRef<'s>,
    ) -> Option<Value> {
        if field.pointer && matches!(json, Json::Null) {
            return unset_value(field, owner);
        }
        let length = self.path.len();
        self.enter(&field.name);
        let n_fields = self.fields.len();
        if !field.embedded_in.is_empty() {
            self.fields.push(&field.embedded_in);
        }
        self.fields.push(&field.name);
        let type_ref = owner.to(field.node);
        let value = self.decode_value(json, type_ref);
        self.fields.truncate(n_fields);
        self.path.truncate(length);
        if field.pointer || !is_omitted(&value) {
            return Some(value);
        }
        // For these fields, an explicitly empty list differs from an absent one: with an empty `managedFields`, a
        // client resets the managers, and validation refuses the others.
        let differs_when_empty =
            DIFFERS_WHEN_EMPTY.contains(&(&*owner.node().go, &*field.name)) && !value.is_null();
        let resets_managers = &*field.name == "managedFields" && self.fields == ["metadata"];
        let refused_in_template = ["finalizers", "managedFields", "ownerReferences"]
            .contains(&&*field.name)
            && self.fields == ["spec", "metadata"];
        let keeps_list = (resets_managers || refused_in_template) && value.is_array();
        if differs_when_empty || keeps_list {
            return Some(value);
        }
        unless_omitted(field, type_ref, value)
    }

    fn decode_map(&mut self, entries: &[(Cow<'_, str>, Json<'_>)], type_ref: TypeRef<'s>) -> Value {
        let mut out = Map::new();
        for (key, json) in entries {
            let length = self.path.len();
            self.enter(key);
            let value = match self.decode_value(json, type_ref) {
                Value::Null if matches!(type_ref.shape(), Shape::Bytes) => {
                    Value::String(String::new())
                }
                value => value,
            };
            self.path.truncate(length);
            if out.insert(key.clone().into_owned(), value).is_some() {
                self.report_strict("duplicate", key);
            }
        }
        Value::Object(out)
    }

    fn decode_list(&mut self, items: &[Json<'_>], type_ref: TypeRef<'s>) -> Value {
        let length = self.path.len();
        let mut values = Vec::with_capacity(items.len());
        for (i, json) in items.iter().enumerate() {
            // A write to memory does not fail.
            let _ = write!(self.path, "[{i}]");
            values.push(self.decode_value(json, type_ref));
            self.path.truncate(length);
        }
        Value::Array(values)
    }

    /// Adds a field or a key to the path.
    fn enter(&mut self, key: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(key);
    }

    /// Reports a strict decoding error about a field of the current value; `problem_name` is `unknown` or `duplicate`.
    fn report_strict(&mut self, problem_name: &str, key: &str) {
        let dot = if self.path.is_empty() { "" } else { "." };
        let problem =
            format!("{problem_name} field {}", quoted(&format!("{}{dot}{key}", self.path)));
        if is_reported(&self.errors.strict) && !self.errors.strict.contains(&problem) {
            self.errors.strict.push(problem);
        }
    }

    /// Records the error of a value that cannot be decoded. After a value of a wrong JSON type, Go continues to
    /// decode; the error of a type that parses its own JSON, such as a time, then replaces the earlier error.
    fn fail(&mut self, problem: scalars::ScalarError, json: &Json<'_>, type_ref: TypeRef<'_>) {
        let is_unstructured = self.decoder == DecoderKind::Unstructured;
        let parses_own_json = matches!(
            type_ref.shape(),
            Shape::Time
                | Shape::MicroTime
                | Shape::Duration
                | Shape::Quantity
                | Shape::IntOrString
                | Shape::Any
        );
        if self.is_error_final || self.errors.error.is_some() && !parses_own_json {
            return;
        }
        self.is_error_final = is_unstructured || parses_own_json;
        let as_type = match &problem {
            scalars::ScalarError::GoType(go) => Some(*go),
            _ => None,
        };
        let form = match problem {
            scalars::ScalarError::Text(text) => {
                let is_bytes = is_unstructured && matches!(type_ref.shape(), Shape::Bytes);
                let prefix = if is_bytes { "error decoding from json: " } else { "" };
                self.errors.error = Some(format!("{prefix}{text}"));
                return;
            }
            scalars::ScalarError::GoType(go) if is_unstructured => {
                self.errors.error = Some(format!(
                    "json: cannot unmarshal {} into Go value of type {go}",
                    json.json_type()
                ));
                return;
            }
            _ if is_unstructured => {
                self.errors.error = Some(conversion_error(json, type_ref));
                return;
            }
            scalars::ScalarError::Type | scalars::ScalarError::GoType(_) => {
                json.json_type().to_owned()
            }
            scalars::ScalarError::Range(text) => format!("number {text}"),
        };
        let expected = match (as_type, type_ref.shape()) {
            (Some(go), _) => go,
            (None, Shape::IntOrString) => "int32",
            _ => &type_ref.node().go,
        };
        let (go, owner) = (expected, self.owner.rsplit('.').next().unwrap_or(""));
        let target = if self.fields.is_empty() {
            "value".to_owned()
        } else {
            format!("struct field {owner}.{}", self.fields.join("."))
        };
        self.errors.error =
            Some(format!("json: cannot unmarshal {form} into Go {target} of type {go}"));
    }
}

/// Field of a struct in the course of its decoding.
enum Slot<'j> {
    /// The object does not have the field.
    Absent,
    /// The object has the field with this value.
    Sent(Cow<'j, Json<'j>>),
    /// Decoded value; `None` if Go omits it.
    Decoded(Option<Value>),
}

/// Entry of an object: its key and its value.
type Entry<'j> = (Cow<'j, str>, Json<'j>);

/// Returns the value of each of the struct's fields, with duplicates merged, and all entries in the order written, each
/// with the index of its field if the struct has one.
fn collect_fields<'j>(
    entries: &'j [Entry<'j>],
    s: &Struct,
) -> (Vec<Slot<'j>>, Vec<(Option<usize>, &'j Entry<'j>)>) {
    let mut slots: Vec<Slot<'_>> = s.fields.iter().map(|_| Slot::Absent).collect();
    let mut order = Vec::with_capacity(entries.len());
    for entry in entries {
        let index = s.field_index(&entry.0);
        if let Some(slot) = index.and_then(|index| slots.get_mut(index)) {
            *slot = match std::mem::replace(slot, Slot::Absent) {
                Slot::Sent(before) => {
                    Slot::Sent(Cow::Owned(merge_duplicate(before.into_owned(), &entry.1)))
                }
                Slot::Absent | Slot::Decoded(_) => Slot::Sent(Cow::Borrowed(&entry.1)),
            };
        }
        order.push((index, entry));
    }
    (slots, order)
}

/// Merges a duplicate field: the entries of a later object are added, other values are replaced. An entry that both
/// objects have is no duplicate in them.
fn merge_duplicate<'a>(before: Json<'a>, after: &Json<'a>) -> Json<'a> {
    let (mut merged, after) = match (before, after) {
        (Json::Object(before), Json::Object(after)) => (before, after),
        (_, after) => return after.clone(),
    };
    let n_before = merged.len();
    let mut seen = HashSet::with_capacity(after.len());
    for (key, value) in after {
        let is_first = seen.insert(key);
        let earlier = merged.iter_mut().take(n_before).rfind(|(other, _)| is_first && other == key);
        match earlier {
            Some((_, slot)) => {
                *slot = merge_duplicate(std::mem::replace(slot, Json::Null), value);
            }
            None => merged.push((key.clone(), value.clone())),
        }
    }
    Json::Object(merged)
}

/// Returns the error of upstream's converter for unstructured objects, which names JSON types but no field.
///
/// Upstream: `fromUnstructured`.
pub(crate) fn conversion_error(json: &Json<'_>, type_ref: TypeRef<'_>) -> String {
    let (kind, go) = match json {
        Json::Null => ("nil", "nil"),
        Json::Bool(_) => ("bool", "bool"),
        Json::Number(text) if text.contains(['.', 'e', 'E']) => ("float64", "float64"),
        Json::Number(_) => ("int64", "int64"),
        Json::String(_) => ("string", "string"),
        Json::Array(_) => ("slice", "[]interface {}"),
        Json::Object(_) => ("map", "map[string]interface {}"),
    };
    // Go converts numbers to numbers, and integers to strings. Each other type has its own error.
    match (type_ref.shape(), kind) {
        (Shape::Struct(_), _) => format!("cannot restore struct from: {kind}"),
        (Shape::Map { .. }, _) => format!("cannot restore map from {kind}"),
        (Shape::List { .. }, _) => format!("cannot restore slice from {kind}"),
        (Shape::String, "bool" | "float64" | "slice" | "map") => {
            "unrecognized type: string".to_owned()
        }
        (Shape::Bool, _) => "unrecognized type: bool".to_owned(),
        (Shape::Int { bits }, "bool" | "string" | "slice" | "map") => {
            format!("unrecognized type: int{bits}")
        }
        (Shape::Float, "bool" | "string" | "slice" | "map") => {
            "unrecognized type: float64".to_owned()
        }
        _ => format!("cannot convert {go} to {}", type_ref.node().go),
    }
}

/// Quotes a string. Escapes only backslashes and double quotes, unlike Go's `%q`.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::json::parse;
    use super::*;
    use crate::schema::Schema;

    fn read(group: &str, kind: &str, text: &str) -> (Value, DecodeErrors) {
        let schema = Schema::builtin(group, "v1", kind).expect("a built-in kind");
        decode(&parse(text.as_bytes()).expect("valid"), schema.type_ref())
    }

    #[test]
    fn empty_fields_are_omitted_or_kept_as_go_encodes_them() {
        let (value, errors) = read(
            "",
            "ConfigMap",
            r#"{"metadata":{"name":"a","labels":{},"creationTimestamp":null},"data":{"k":null},"immutable":false}"#,
        );
        assert_eq!(
            value,
            json!({"metadata": {"name": "a"}, "data": {"k": ""}, "immutable": false})
        );
        assert!(errors.strict.is_empty() && errors.error.is_none());
        let (value, _) = read("apps", "Deployment", r#"{"spec":{"replicas":0}}"#);
        let want = json!({"metadata": {}, "status": {}, "spec": {"replicas": 0, "selector": null, "strategy": {},
            "template": {"metadata": {}, "spec": {"containers": null}}}});
        assert_eq!(value, want);
        let (mut value, _) = read("rbac.authorization.k8s.io", "Role", r#"{"rules":[]}"#);
        assert_eq!(value, json!({"metadata": {}, "rules": []}));
        let role =
            Schema::builtin("rbac.authorization.k8s.io", "v1", "Role").expect("a built-in kind");
        null_empty(&mut value, role.type_ref());
        assert_eq!(value, json!({"metadata": {}, "rules": null}));
        let (value, _) = read("", "Secret", r#"{"data":{"k":null}}"#);
        assert_eq!(value["data"], json!({"k": ""}));
        let (value, _) = read("", "Pod", r#"{"spec":{"containers":[{"name":"c"}]}}"#);
        assert_eq!(value["spec"], json!({"containers": [{"name": "c", "resources": {}}]}));
    }

    #[test]
    fn type_errors_have_gos_text() {
        for (group, kind, text, error) in [
            (
                "",
                "ConfigMap",
                r#"{"data":{"k":1}}"#,
                "number into Go struct field ConfigMap.data of type string",
            ),
            (
                "",
                "ConfigMap",
                r#"{"data":"x"}"#,
                "string into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "",
                "ConfigMap",
                r#"{"metadata":{"name":1}}"#,
                "number into Go struct field ObjectMeta.metadata.name of type string",
            ),
            (
                "",
                "ConfigMap",
                r#"{"metadata":[]}"#,
                "array into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
            ),
            (
                "apps",
                "Deployment",
                r#"{"spec":{"replicas":"3"}}"#,
                "string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "apps",
                "Deployment",
                r#"{"spec":{"replicas":1.5}}"#,
                "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "apps",
                "Deployment",
                r#"{"spec":{"replicas":99999999999}}"#,
                "number 99999999999 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "",
                "Pod",
                r#"{"spec":{"hostNetwork":"yes"}}"#,
                "string into Go struct field PodSpec.spec.hostNetwork of type bool",
            ),
            (
                "",
                "Pod",
                r#"{"spec":{"containers":{}}}"#,
                "object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
        ] {
            let (_, errors) = read(group, kind, text);
            assert_eq!(errors.error, Some(format!("json: cannot unmarshal {error}")), "{text}");
        }
        // Paths contain embedded structs, and the error of a type that parses its own JSON ends decoding.
        for (group, kind, text, error) in [
            (
                "",
                "Pod",
                r#"{"spec":{"volumes":[{"nfs":[]}]}}"#,
                "json: cannot unmarshal array into Go struct field Volume.spec.volumes.VolumeSource.nfs of type v1.NFSVolumeSource",
            ),
            (
                "networking.k8s.io",
                "Ingress",
                r#"{"spec":{"rules":[{"http":{"paths":[1]}}]}}"#,
                "json: cannot unmarshal number into Go struct field HTTPIngressRuleValue.spec.rules.IngressRuleValue.http.paths of type v1.HTTPIngressPath",
            ),
            (
                "",
                "ConfigMap",
                r#"{"data":1,"metadata":{"creationTimestamp":5}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
            (
                "",
                "ResourceQuota",
                r#"{"metadata":{"name":1},"spec":{"hard":{"pods":"a"}}}"#,
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ] {
            assert_eq!(read(group, kind, text).1.error.as_deref(), Some(error), "{text}");
        }
        let schema = Schema::builtin("", "v1", "Pod").expect("a built-in kind");
        for (text, error) in [
            // `volumes` precedes `hostname` in the struct.
            (r#"{"spec":{"hostname":1.5,"volumes":{}}}"#, "cannot restore slice from map"),
            (
                r#"{"metadata":{"creationTimestamp":5}}"#,
                "json: cannot unmarshal number into Go value of type string",
            ),
        ] {
            let json = parse(text.as_bytes()).expect("valid");
            let (_, errors) = decode_from(DecoderKind::Unstructured, &json, schema.type_ref());
            assert_eq!(errors.error.as_deref(), Some(error), "{text}");
        }
        let (_, errors) = read("", "Secret", r#"{"data":{"k":"!"}}"#);
        assert_eq!(errors.error.as_deref(), Some("illegal base64 data at input byte 0"));
        let (_, errors) = read("", "Pod", r#"{"metadata":{"deletionTimestamp":"bad"}}"#);
        let want =
            r#"parsing time "bad" as "2006-01-02T15:04:05Z07:00": cannot parse "bad" as "2006""#;
        assert_eq!(errors.error.as_deref(), Some(want));
    }

    #[test]
    fn unknown_and_duplicate_fields_are_reported_in_order() {
        let text = r#"{"x":1,"spec":{"containers":[{"name":"a","nope":1,"name":"b"}],"y":{}},"metadata":{"labels":{"a":"1","a":"2"}}}"#;
        let (value, errors) = read("", "Pod", text);
        let want = [
            r#"unknown field "x""#,
            r#"unknown field "spec.containers[0].nope""#,
            r#"duplicate field "spec.containers[0].name""#,
            r#"unknown field "spec.y""#,
            r#"duplicate field "metadata.labels.a""#,
        ];
        assert_eq!(errors.strict, want);
        assert_eq!(value["metadata"]["labels"], json!({"a": "2"}));
        assert_eq!(value["spec"]["containers"][0]["name"], "b");
    }

    #[test]
    fn entries_of_duplicate_objects_are_merged() {
        let text = r#"{"metadata":{"name":"a","labels":{"x":"1"}},"metadata":{"name":"b","uid":"u","uid":"v","labels":{"y":"2"}}}"#;
        let (value, errors) = read("", "Pod", text);
        let metadata = &value["metadata"];
        assert_eq!((&metadata["name"], &metadata["uid"]), (&json!("b"), &json!("v")));
        assert_eq!(metadata["labels"], json!({"x": "1", "y": "2"}));
        let want = [r#"duplicate field "metadata.uid""#, r#"duplicate field "metadata""#];
        assert_eq!(errors.strict, want);
    }

    #[test]
    fn decoding_a_decoded_object_changes_nothing() {
        let text = r#"{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":1}},"readinessProbe":{"httpGet":{"port":80}}}]},"status":{"startTime":"2026-01-02T03:04:05.6+01:00"}}"#;
        let (once, _) = read("", "Pod", text);
        let (twice, errors) = read("", "Pod", &once.to_string());
        assert_eq!(once, twice);
        assert!(errors.strict.is_empty());
        assert_eq!(once["status"]["startTime"], "2026-01-02T02:04:05Z");
    }
}
