//! Custom resources: kept as they are written but for their metadata, and for fields that the schema does not know.

use serde_json::Value;

use super::json::{self, Json};
use super::typed::{self, Findings};
use crate::schema::node::{At, Rest, Shape};

/// Reads a custom resource: metadata as Go reads it, the rest as it is without unknown fields. Wrong types are for validation.
pub(super) fn decode(body: &Json<'_>, at: At<'_>) -> (Value, Findings) {
    let mut findings = Findings { strict: json::repeated(body), error: None };
    let mut value = body.to_value();
    if let Some(number) = settle(&mut value, body) {
        findings.error =
            Some(format!("json: cannot unmarshal number {number} into Go value of type float64"));
    }
    prune(&mut value, at, "", &mut findings);
    (value, findings)
}

/// Numbers as they read once they are stored: whole ones without a fraction, those too large for an integer as floats.
/// Gives back one that is too large for either.
fn settle(value: &mut Value, body: &Json<'_>) -> Option<String> {
    match (value, body) {
        // What no float holds has been read as null.
        (value @ (Value::Number(_) | Value::Null), Json::Number(text)) => {
            let number = value.as_f64().filter(|n| n.is_finite());
            let Some(number) = number.filter(|_| text.parse().is_ok_and(f64::is_finite)) else {
                return Some(text.to_string());
            };
            // Beyond this whole floats are not all integers.
            const WHOLE: f64 = 9.0e15;
            if value.is_f64() && number.fract() == 0.0 && number.abs() < WHOLE {
                *value = Value::from(number as i64);
            } else if value.is_u64() && !value.is_i64() {
                *value = Value::from(number);
            }
            None
        }
        (Value::Array(items), Json::Array(bodies)) => {
            items.iter_mut().zip(bodies).find_map(|(value, body)| settle(value, body))
        }
        (Value::Object(fields), body @ Json::Object(_)) => fields
            .iter_mut()
            .find_map(|(name, value)| body.get(name).and_then(|body| settle(value, body))),
        _ => None,
    }
}

fn prune(value: &mut Value, at: At<'_>, path: &str, findings: &mut Findings) {
    match (at.shape(), value) {
        (Shape::Struct(s), Value::Object(entries)) => {
            for (key, mut value) in std::mem::take(entries) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match (s.field(&key), s.rest) {
                    (Some(field), _) if s.embedded && key == "metadata" => {
                        value = metadata(&value, at.to(field.node), &path, findings);
                    }
                    (Some(field), _) => prune(&mut value, at.to(field.node), &path, findings),
                    (None, Rest::Keep) => {}
                    (None, Rest::Typed(id)) => prune(&mut value, at.to(id), &path, findings),
                    (None, Rest::Drop) => {
                        findings.strict.push(format!("unknown field {}", typed::quoted(&path)));
                        continue;
                    }
                }
                entries.insert(key, value);
            }
        }
        (Shape::Map { value: of, .. }, Value::Object(entries)) => {
            for (key, value) in entries {
                prune(value, at.to(*of), &format!("{path}.{key}"), findings);
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            for (i, value) in items.iter_mut().enumerate() {
                prune(value, at.to(*item), &format!("{path}[{i}]"), findings);
            }
        }
        _ => {}
    }
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
    use crate::resource::GroupVersionKind;
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
