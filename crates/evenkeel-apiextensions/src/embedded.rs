//! Objects within custom objects: they say what they are, and their metadata is an object's (upstream: `schema/objectmeta`).

use serde_json::Value;

use super::node::Node;
use crate::validate::below;
use evenkeel_api::forms::path_segment;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::text;

/// What is wrong with the objects inside `value`; the root itself is looked at elsewhere.
pub fn check(value: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if node.embedded {
                one(value, path, errors);
            }
            for (name, value) in fields {
                if let Some(child) = node.child(name) {
                    check(value, child, &below(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &node.items else { return };
            for (i, item) in items.iter().enumerate() {
                check(item, child, &format!("{path}[{i}]"), errors);
            }
        }
        _ => {}
    }
}

fn one(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let api_version = text(object, "apiVersion");
    let field = |name: &str| below(path, name);
    let missing = |name: &str| match object.get(name) {
        None => FieldError::required(field(name), ""),
        Some(_) => FieldError::invalid(field(name), "", "must not be empty"),
    };
    if api_version.is_empty() {
        errors.push(missing("apiVersion"));
    } else if api_version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {api_version}");
        errors.push(FieldError::invalid(field("apiVersion"), api_version, why));
    }
    let kind = text(object, "kind");
    if kind.is_empty() {
        errors.push(missing("kind"));
    } else {
        let wrong = evenkeel_api::forms::dns_1035_label(&kind.to_lowercase());
        if !wrong.is_empty() {
            let why =
                format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.push(FieldError::invalid(field("kind"), kind, why));
        }
    }
    let name = text(object, "metadata.name");
    let at = field("metadata.name");
    errors.extend(path_segment(name).into_iter().map(|why| FieldError::invalid(&*at, name, why)));
    errors.extend(evenkeel_apimachinery::schema::validate_metadata(object).into_iter().map(
        |mut error| {
            error.field = below(path, &error.field);
            error
        },
    ));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_say_what_they_are() {
        let node = Node::new(&json!({"type": "object", "properties": {"o": {"type": "object",
            "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}));
        let object = json!({"o": {"apiVersion": "", "metadata": {"name": "a"}}});
        let mut errors = Vec::new();
        check(&object, &node, "", &mut errors);
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let wanted =
            ["o.apiVersion: Invalid value: \"\": must not be empty", "o.kind: Required value"];
        assert_eq!(told, wanted);
    }
}
