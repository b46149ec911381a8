//! Custom resources: kept as they are written but for their metadata, and for fields that the schema does not know.

use serde_json::Value;

use super::json::{self, Json};
use super::typed::{self, Findings};
use crate::schema::node::{At, Rest, Shape};

/// Reads a custom resource: metadata as Go reads it, the rest as it is without unknown fields. Wrong types are for validation.
pub(super) fn decode(body: &Json<'_>, at: At<'_>) -> (Value, Findings) {
    let mut findings = Findings { strict: json::repeated(body), error: None };
    let mut value = read(body, &mut findings);
    prune(&mut value, at, &mut String::new(), &mut findings);
    (value, findings)
}

/// The value with its numbers as they read once they are stored; of repeated keys the last counts.
fn read(body: &Json<'_>, findings: &mut Findings) -> Value {
    match body {
        Json::Number(text) => number(text).unwrap_or_else(|| {
            findings.error.get_or_insert_with(|| {
                format!("json: cannot unmarshal number {text} into Go value of type float64")
            });
            Value::Null
        }),
        Json::Array(items) => items.iter().map(|item| read(item, findings)).collect(),
        Json::Object(entries) => Value::Object(
            entries.iter().map(|(k, v)| (k.clone().into_owned(), read(v, findings))).collect(),
        ),
        other => other.to_value(),
    }
}

/// A number as it reads once it is stored: a whole one without a fraction, one too large for an integer as a float. `None`
/// where it is too large for either.
fn number(text: &str) -> Option<Value> {
    let value = json::number(text);
    let number = value.as_f64().filter(|number| number.is_finite())?;
    // Beyond this whole floats are not all integers.
    const WHOLE: f64 = 9.0e15;
    if value.is_f64() && number.fract() == 0.0 && number.abs() < WHOLE {
        return Some(Value::from(number as i64));
    }
    Some(value)
}

/// Drops the fields that the schema does not know. `path` is that of `value`, and is left as it was.
fn prune(value: &mut Value, at: At<'_>, path: &mut String, findings: &mut Findings) {
    let length = path.len();
    match (at.shape(), value) {
        (Shape::Struct(s), Value::Object(entries)) => {
            entries.retain(|key, value| {
                enter(path, key);
                let kept = match (s.field(key), s.rest) {
                    (Some(field), _) if s.embedded && key == "metadata" => {
                        *value = metadata(value, at.to(field.node), path, findings);
                        true
                    }
                    (Some(field), _) => {
                        prune(value, at.to(field.node), path, findings);
                        true
                    }
                    (None, Rest::Keep) => true,
                    (None, Rest::Typed(id)) => {
                        prune(value, at.to(id), path, findings);
                        true
                    }
                    (None, Rest::Drop) => false,
                };
                if !kept && findings.strict.len() < typed::MAX_PROBLEMS {
                    findings.strict.push(format!("unknown field {}", typed::quoted(path)));
                }
                path.truncate(length);
                kept
            });
        }
        (Shape::Map { value: of, .. }, Value::Object(entries)) => {
            for (key, value) in entries {
                enter(path, key);
                prune(value, at.to(*of), path, findings);
                path.truncate(length);
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            for (i, value) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{i}]"));
                prune(value, at.to(*item), path, findings);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn enter(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn metadata(value: &Value, at: At<'_>, path: &str, findings: &mut Findings) -> Value {
    let (read, found) = typed::decode(&Json::from(value), at);
    let placed = |problem: String| match problem.split_once('"') {
        Some((what, rest)) => format!("{what}\"{path}.{rest}"),
        None => problem,
    };
    findings.strict.extend(found.strict.into_iter().map(placed));
    findings.error = findings.error.take().or(found.error);
    read
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::group_version::GroupVersionKind;
    use crate::schema::Schema;

    fn widget() -> Schema {
        let kind = GroupVersionKind {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Widget".into(),
        };
        let text = json!({"type": "string"});
        let port = json!({"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string", "default": "p"}}});
        let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "default": 1}, "free": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true}, "labels": {"type": "object", "additionalProperties": text},
            "ports": {"type": "array", "items": port, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"]}}});
        Schema::custom(&kind, &json!({"type": "object", "properties": {"spec": spec}}), false)
    }

    #[test]
    fn drops_what_the_schema_does_not_know() {
        let schema = widget();
        let body = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "nope": 1}, "x": 1,
            "spec": {"size": "big", "y": 2, "free": {"z": 3}, "labels": {"a": "b"}, "ports": [{"port": 80, "w": 4}]}});
        let (value, findings) = decode(&Json::from(&body), schema.at());
        let want = ["metadata.nope", "spec.ports[0].w", "spec.y", "x"]
            .map(|f| format!("unknown field \"{f}\""));
        assert_eq!(findings.strict, want);
        let want = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
            "spec": {"size": "big", "free": {"z": 3}, "labels": {"a": "b"}, "ports": [{"port": 80}]}});
        assert_eq!(value, want);
    }
    #[test]
    fn numbers_that_no_float_holds_are_refused() {
        let schema = widget();
        for (number, error) in [
            ("1e300", None),
            ("1e400", Some("json: cannot unmarshal number 1e400 into Go value of type float64")),
        ] {
            let text = format!(r#"{{"kind":"Widget","spec":{{"free":{{"n":{number}}}}}}}"#);
            let body = json::parse(text.as_bytes()).expect("JSON");
            let (_, findings) = decode(&body, schema.at());
            assert_eq!(findings.error.as_deref(), error, "{number}");
        }
    }
}
