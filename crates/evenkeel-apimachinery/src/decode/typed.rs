//! Reads a body the way Go's decoder reads it into a kind's struct, and writes it the way Go's encoder writes that struct.
//!
//! The result is canonical: absent and null are the same where Go cannot tell them apart, empty optional fields are
//! gone, required ones are there, quantities and times have their one spelling. Everything after decoding relies on it.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::json::Json;
use super::scalars;
use crate::schema::node::{At, Field, Rest, Shape, Struct};

/// More problems than this are not reported.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// What reading a body found besides the value.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// `unknown field "spec.x"`, `duplicate field "spec.y"`, in the order met.
    pub strict: Vec<String>,
    /// The first value of a wrong type, worded as Go words it.
    pub error: Option<String>,
}

/// Which of upstream's two decoders speaks: the one of JSON text or the one of trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Source {
    #[default]
    Text,
    Tree,
}

/// Reads `json` as a value of the type `at`.
pub(crate) fn decode(json: &Json<'_>, at: At<'_>) -> (Value, Findings) {
    decode_from(Source::Text, json, at)
}

/// [`decode`] with the words of one of the decoders.
pub(crate) fn decode_from(source: Source, json: &Json<'_>, at: At<'_>) -> (Value, Findings) {
    let mut decoder = Decoder { source, ..Decoder::default() };
    let value = decoder.value(json, at);
    (value, decoder.findings)
}

/// What Go writes for a value of the type that was never set.
pub(crate) fn zero(at: At<'_>) -> Value {
    match at.shape() {
        Shape::Bool => Value::Bool(false),
        Shape::Int { .. } | Shape::Float | Shape::IntOrString => 0.into(),
        Shape::String => Value::String(String::new()),
        Shape::Duration => "0s".into(),
        Shape::Quantity => "0".into(),
        Shape::Struct(s) => {
            let mut object = Map::new();
            for field in s.fields.iter() {
                if let Some(value) = absent(field, at) {
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

/// Turns empty lists and maps into null: upstream's storage does not tell the one from the other. What may be left out
/// when empty was left out by decoding; this is about the rest.
pub(crate) fn forget_empty(value: &mut Value, at: At<'_>) {
    match (at.shape(), value) {
        (Shape::List { .. } | Shape::Map { .. }, value) if is_empty(value) => *value = Value::Null,
        (Shape::Struct(s), Value::Object(entries)) => {
            for (key, value) in entries {
                // Managers are the server's own; an empty list of them has a meaning.
                if let Some(field) = s.field(key).filter(|f| &*f.name != "managedFields") {
                    forget_empty(value, at.to(field.node));
                }
            }
        }
        (Shape::Map { value, .. }, Value::Object(entries)) => {
            let at = at.to(*value);
            if matches!(at.shape(), Shape::Struct(_)) {
                entries.values_mut().for_each(|value| forget_empty(value, at));
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            let at = at.to(*item);
            if matches!(at.shape(), Shape::Struct(_)) {
                items.iter_mut().for_each(|value| forget_empty(value, at));
            }
        }
        _ => {}
    }
}

/// What Go writes for a named field of the type that was never set; `None` when it leaves it out.
pub(crate) fn unset(at: At<'_>, field: &str) -> Option<Value> {
    absent(at.as_struct()?.field(field)?, at)
}

/// What Go writes for a field that was never set; `None` when it leaves it out.
fn absent(field: &Field, owner: At<'_>) -> Option<Value> {
    if field.pointer {
        return (!field.omit_empty).then_some(Value::Null);
    }
    keep(field, owner.to(field.node), zero(owner.to(field.node)))
}

/// The value, unless Go leaves it out.
fn keep(field: &Field, at: At<'_>, value: Value) -> Option<Value> {
    let dropped = match at.shape() {
        Shape::Struct(_)
        | Shape::Quantity
        | Shape::IntOrString
        | Shape::Duration
        | Shape::Any
        | Shape::Raw => false,
        Shape::Time | Shape::MicroTime => field.omit_zero && value.is_null(),
        _ => field.omit_empty && is_empty(&value),
    };
    (!dropped).then_some(value)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

#[derive(Default)]
struct Decoder<'s> {
    source: Source,
    findings: Findings,
    /// The path that strict errors print.
    path: String,
    /// The names of the struct fields on the way, which type errors print.
    fields: Vec<&'s str>,
    /// The struct whose field is being read.
    owner: &'s str,
}

impl<'s> Decoder<'s> {
    fn value(&mut self, json: &Json<'_>, at: At<'s>) -> Value {
        if matches!(json, Json::Null) {
            return zero(at);
        }
        match (at.shape(), json) {
            (Shape::Any | Shape::Raw, _) => json.to_value(),
            (Shape::Struct(s), Json::Object(entries)) => self.object(entries, s, at),
            (Shape::Map { value, .. }, Json::Object(entries)) => self.map(entries, at.to(*value)),
            (Shape::List { item, .. }, Json::Array(items)) => self.list(items, at.to(*item)),
            (shape, _) => match scalars::read(shape, json) {
                Ok(value) => value,
                Err(problem) => {
                    self.fail(problem, json, at);
                    zero(at)
                }
            },
        }
    }

    fn object(&mut self, entries: &[(Cow<'_, str>, Json<'_>)], s: &'s Struct, at: At<'s>) -> Value {
        let mut given = gather(entries, s);
        let mut out = Map::new();
        let outer = std::mem::replace(&mut self.owner, &at.node().go);
        for (key, json) in entries {
            match (s.field(key), s.rest) {
                (Some(field), _) => match given.remove(&*field.name) {
                    Some(json) => self.field(field, &json, at, &mut out),
                    None => self.strict("duplicate", key),
                },
                (None, Rest::Drop) => self.strict("unknown", key),
                (None, Rest::Keep) => {
                    out.insert(key.clone().into_owned(), json.to_value());
                }
                (None, Rest::Typed(id)) => {
                    let value = self.value(json, at.to(id));
                    out.insert(key.clone().into_owned(), value);
                }
            }
        }
        self.owner = outer;
        for field in s.fields.iter().filter(|f| !entries.iter().any(|(k, _)| *k == *f.name)) {
            if let Some(value) = absent(field, at) {
                out.insert(field.name.to_string(), value);
            }
        }
        Value::Object(out)
    }

    fn field(
        &mut self,
        field: &'s Field,
        json: &Json<'_>,
        owner: At<'s>,
        out: &mut Map<String, Value>,
    ) {
        if let Some(value) = self.field_value(field, json, owner) {
            out.insert(field.name.to_string(), value);
        }
    }

    fn field_value(&mut self, field: &'s Field, json: &Json<'_>, owner: At<'s>) -> Option<Value> {
        if field.pointer && matches!(json, Json::Null) {
            return absent(field, owner);
        }
        let length = self.path.len();
        self.enter(&field.name);
        self.fields.push(&field.name);
        let at = owner.to(field.node);
        let value = self.value(json, at);
        self.fields.pop();
        self.path.truncate(length);
        // An explicitly empty list of owners is a client's way to clear it, one of scaling policies is refused: they must
        // not look absent.
        let told_apart = &*field.name == "managedFields"
            || (&*field.name == "policies" && &*owner.node().go == "v2.HPAScalingRules");
        if field.pointer || (told_apart && value.is_array()) {
            return Some(value);
        }
        keep(field, at, value)
    }

    fn map(&mut self, entries: &[(Cow<'_, str>, Json<'_>)], at: At<'s>) -> Value {
        let mut out = Map::new();
        for (key, json) in entries {
            let length = self.path.len();
            self.enter(key);
            let value = match self.value(json, at) {
                Value::Null if matches!(at.shape(), Shape::Bytes) => Value::String(String::new()),
                value => value,
            };
            self.path.truncate(length);
            if out.insert(key.clone().into_owned(), value).is_some() {
                self.strict("duplicate", key);
            }
        }
        Value::Object(out)
    }

    fn list(&mut self, items: &[Json<'_>], at: At<'s>) -> Value {
        let length = self.path.len();
        let read = |(i, json): (usize, &Json<'_>)| {
            self.path.push_str(&format!("[{i}]"));
            let value = self.value(json, at);
            self.path.truncate(length);
            value
        };
        Value::Array(items.iter().enumerate().map(read).collect())
    }

    fn enter(&mut self, key: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(key);
    }

    fn strict(&mut self, what: &str, key: &str) {
        let dot = if self.path.is_empty() { "" } else { "." };
        let problem = format!("{what} field {}", quoted(&format!("{}{dot}{key}", self.path)));
        if self.findings.strict.len() < MAX_PROBLEMS && !self.findings.strict.contains(&problem) {
            self.findings.strict.push(problem);
        }
    }

    fn fail(&mut self, problem: scalars::Problem, json: &Json<'_>, at: At<'_>) {
        if self.findings.error.is_some() {
            return;
        }
        if self.source == Source::Tree && !matches!(problem, scalars::Problem::Text(_)) {
            self.findings.error = Some(no_conversion(json, at));
            return;
        }
        let as_type = match &problem {
            scalars::Problem::As(go) => Some(*go),
            _ => None,
        };
        let form = match problem {
            scalars::Problem::Text(text) => {
                self.findings.error = Some(text);
                return;
            }
            scalars::Problem::Form | scalars::Problem::As(_) => json.form().to_owned(),
            scalars::Problem::Number(text) => format!("number {text}"),
        };
        let expected = match (as_type, at.shape()) {
            (Some(go), _) => go,
            (None, Shape::IntOrString) => "int32",
            _ => &at.node().go,
        };
        let (go, owner) = (expected, self.owner.rsplit('.').next().unwrap_or(""));
        let place = if self.fields.is_empty() {
            "value".to_owned()
        } else {
            format!("struct field {owner}.{}", self.fields.join("."))
        };
        self.findings.error =
            Some(format!("json: cannot unmarshal {form} into Go {place} of type {go}"));
    }
}

/// What is given for each named field; of a field given twice, both together.
fn gather<'s, 'j>(
    entries: &'j [(Cow<'j, str>, Json<'j>)],
    s: &'s Struct,
) -> HashMap<&'s str, Cow<'j, Json<'j>>> {
    let mut given: HashMap<&str, Cow<'_, Json<'_>>> = HashMap::with_capacity(entries.len());
    for (key, json) in entries {
        let Some(field) = s.field(key) else { continue };
        let merged = match given.remove(&*field.name) {
            Some(before) => Cow::Owned(over(before.into_owned(), json)),
            None => Cow::Borrowed(json),
        };
        given.insert(&field.name, merged);
    }
    given
}

/// A field given twice: objects are read one over the other, anything else is replaced.
fn over<'a>(before: Json<'a>, after: &Json<'a>) -> Json<'a> {
    match (before, after) {
        (Json::Object(mut a), Json::Object(b)) => {
            a.extend(b.iter().cloned());
            Json::Object(a)
        }
        (_, after) => after.clone(),
    }
}

/// Upstream's converter of trees complains about kinds of values and names no field.
fn no_conversion(json: &Json<'_>, at: At<'_>) -> String {
    let (kind, go) = match json {
        Json::Null => ("nil", "nil"),
        Json::Bool(_) => ("bool", "bool"),
        Json::Number(text) if text.contains(['.', 'e', 'E']) => ("float64", "float64"),
        Json::Number(_) => ("int64", "int64"),
        Json::String(_) => ("string", "string"),
        Json::Array(_) => ("slice", "[]interface {}"),
        Json::Object(_) => ("map", "map[string]interface {}"),
    };
    match at.shape() {
        Shape::Struct(_) => format!("cannot restore struct from: {kind}"),
        Shape::Map { .. } => format!("cannot restore map from {kind}"),
        Shape::List { .. } => format!("cannot restore slice from {kind}"),
        _ => format!("cannot convert {go} to {}", at.node().go),
    }
}

/// As Go's `%q` prints a string.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::json::parse;
    use super::*;
    use crate::schema::Schema;

    fn read(group: &str, kind: &str, text: &str) -> (Value, Findings) {
        let schema = Schema::builtin(group, "v1", kind).expect("a built-in kind");
        decode(&parse(text.as_bytes()).expect("valid"), schema.at())
    }

    #[test]
    fn drops_what_go_drops_and_writes_what_go_writes() {
        let (value, findings) = read(
            "",
            "ConfigMap",
            r#"{"metadata":{"name":"a","labels":{},"creationTimestamp":null},"data":{"k":null},"immutable":false}"#,
        );
        assert_eq!(
            value,
            json!({"metadata": {"name": "a"}, "data": {"k": ""}, "immutable": false})
        );
        assert!(findings.strict.is_empty() && findings.error.is_none());
        let (value, _) = read("apps", "Deployment", r#"{"spec":{"replicas":0}}"#);
        let want = json!({"metadata": {}, "status": {}, "spec": {"replicas": 0, "selector": null, "strategy": {},
            "template": {"metadata": {}, "spec": {"containers": null}}}});
        assert_eq!(value, want);
        let (mut value, _) = read("rbac.authorization.k8s.io", "Role", r#"{"rules":[]}"#);
        assert_eq!(value, json!({"metadata": {}, "rules": []}));
        let role =
            Schema::builtin("rbac.authorization.k8s.io", "v1", "Role").expect("a built-in kind");
        forget_empty(&mut value, role.at());
        assert_eq!(value, json!({"metadata": {}, "rules": null}));
        let (value, _) = read("", "Secret", r#"{"data":{"k":null}}"#);
        assert_eq!(value["data"], json!({"k": ""}));
        let (value, _) = read("", "Pod", r#"{"spec":{"containers":[{"name":"c"}]}}"#);
        assert_eq!(value["spec"], json!({"containers": [{"name": "c", "resources": {}}]}));
    }

    #[test]
    fn words_type_errors_as_go_does() {
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
            let (_, findings) = read(group, kind, text);
            assert_eq!(findings.error, Some(format!("json: cannot unmarshal {error}")), "{text}");
        }
        let (_, findings) = read("", "Secret", r#"{"data":{"k":"!"}}"#);
        assert_eq!(findings.error.as_deref(), Some("illegal base64 data at input byte 0"));
        let (_, findings) = read("", "Pod", r#"{"metadata":{"deletionTimestamp":"bad"}}"#);
        let want =
            r#"parsing time "bad" as "2006-01-02T15:04:05Z07:00": cannot parse "bad" as "2006""#;
        assert_eq!(findings.error.as_deref(), Some(want));
    }

    #[test]
    fn reports_unknown_and_repeated_fields_in_order() {
        let text = r#"{"x":1,"spec":{"containers":[{"name":"a","nope":1,"name":"b"}],"y":{}},"metadata":{"labels":{"a":"1","a":"2"}}}"#;
        let (value, findings) = read("", "Pod", text);
        let want = [
            r#"unknown field "x""#,
            r#"unknown field "spec.containers[0].nope""#,
            r#"duplicate field "spec.containers[0].name""#,
            r#"unknown field "spec.y""#,
            r#"duplicate field "metadata.labels.a""#,
        ];
        assert_eq!(findings.strict, want);
        assert_eq!(value["metadata"]["labels"], json!({"a": "2"}));
        assert_eq!(value["spec"]["containers"][0]["name"], "b");
    }

    #[test]
    fn is_stable_under_repetition() {
        let text = r#"{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":1}},"readinessProbe":{"httpGet":{"port":80}}}]},"status":{"startTime":"2026-01-02T03:04:05.6+01:00"}}"#;
        let (once, _) = read("", "Pod", text);
        let (twice, findings) = read("", "Pod", &once.to_string());
        assert_eq!(once, twice);
        assert!(findings.strict.is_empty());
        assert_eq!(once["status"]["startTime"], "2026-01-02T02:04:05Z");
    }
}
