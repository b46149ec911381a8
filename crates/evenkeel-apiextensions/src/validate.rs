//! What is wrong with a value by its schema (upstream: `kube-openapi/pkg/validation`, with ratcheting of KEP-4008).
//!
//! A part of an object that an update leaves as it was is not looked at again, where the old part can be told: the
//! fields of objects, the elements of lists that are maps.

use serde_json::Value;

use super::node::{ListKind, Node};
use evenkeel_apimachinery::status::FieldError;

/// The path of a field of the value at `path`.
pub(super) fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Checks `value` at `path`; `old` is what was there before, where that is known.
pub fn check(
    value: &Value,
    old: Option<&Value>,
    node: &Node,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) {
        return;
    }
    if !fits_type(value, node, path, errors) {
        return;
    }
    if !node.values.is_empty() && !node.values.contains(value) {
        let shown: Vec<String> = node
            .values
            .iter()
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value.clone(), &shown));
    }
    match value {
        Value::String(text) => string(text, node, path, errors),
        Value::Number(number) => {
            if let Some(n) = number.as_f64() {
                self::number(n, value, node, path, errors);
            }
        }
        Value::Array(items) => array(items, old, node, path, errors),
        Value::Object(_) => object(value, old, node, path, errors),
        Value::Null | Value::Bool(_) => {}
    }
    junctors(value, node, path, errors);
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if is_integer(n) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_integer(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|n| n.fract() == 0.0)
}

fn fits_type(value: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) -> bool {
    let actual = type_of(value);
    let wanted = if node.int_or_string { "integer,string" } else { &*node.kind };
    let fits = match (wanted, actual) {
        (_, "null") => node.nullable || wanted.is_empty(),
        ("", _) | ("number", "integer") | ("integer,string", "integer" | "string") => true,
        (wanted, actual) => wanted == actual,
    };
    if fits && node.format.starts_with("int") && !value.is_i64() && value.is_number() {
        // A float that is too large for the format.
        let why = format!("{path} in body must be of type {}: \"float64\"", node.format);
        errors.push(FieldError::type_invalid(path, "float64", why));
        out_of_range(node, path, errors);
        return false;
    }
    if !fits {
        let why = format!("{path} in body must be of type {wanted}: \"{actual}\"");
        errors.push(FieldError::type_invalid(path, actual, why));
    }
    fits
}

fn string(text: &str, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(max) = node.max_length.filter(|max| length > *max) {
        errors.push(FieldError::too_long(path, usize::try_from(max).unwrap_or(usize::MAX)));
    }
    if let Some(min) = node.min_length.filter(|min| length < *min) {
        let why = format!("{path} in body should be at least {min} chars long");
        errors.push(FieldError::invalid(path, text, why));
    }
    if let Some(pattern) = node.pattern.as_ref().filter(|p| !p.is_match(text)) {
        let why = format!("{path} in body should match '{pattern}'");
        errors.push(FieldError::invalid(path, text, why));
    }
    if !node.int_or_string && !evenkeel_cel::formats::fits(&node.format, text) {
        let why = format!(
            "{path} in body must be of type {}: {}",
            node.format,
            evenkeel_apimachinery::status::quote(text)
        );
        errors.push(FieldError::invalid(path, text, why));
    }
}

/// A number as Go prints it: without a fraction where it has none.
fn shown(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        format!("{number:.0}")
    } else {
        number.to_string()
    }
}

fn number(n: f64, value: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let mut wrong = |why: String| errors.push(FieldError::invalid(path, value.clone(), why));
    if let Some(factor) = node.multiple_of.filter(|f| *f > 0.0 && (n / f).fract() != 0.0) {
        wrong(format!("{path} in body should be a multiple of {}", shown(factor)));
    }
    if let Some(max) = node.maximum {
        if node.below_maximum && n >= max {
            wrong(format!("{path} in body should be less than {}", shown(max)));
        } else if n > max {
            wrong(format!("{path} in body should be less than or equal to {}", shown(max)));
        }
    }
    if let Some(min) = node.minimum {
        if node.above_minimum && n <= min {
            wrong(format!("{path} in body should be greater than {}", shown(min)));
        } else if n < min {
            wrong(format!("{path} in body should be greater than or equal to {}", shown(min)));
        }
    }
    if &*node.format == "int32" && !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&n) {
        out_of_range(node, path, errors);
    }
}

fn out_of_range(node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let why =
        format!("Checked value must be of type integer with format {} in {path}", node.format);
    errors.push(FieldError::invalid("<nil>", "", why));
}

fn array(
    items: &[Value],
    old: Option<&Value>,
    node: &Node,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let count = items.len() as u64;
    if let Some(min) = node.min_items.filter(|min| count < *min) {
        let why = format!("{path} in body should have at least {min} items");
        errors.push(FieldError::invalid(path, count, why));
    }
    if let Some(max) = node.max_items.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, count, max));
    }
    let Some(child) = &node.items else { return };
    for (i, item) in items.iter().enumerate() {
        check(item, element_before(node, item, old), child, &format!("{path}[{i}]"), errors);
    }
}

/// The old element that `item` takes the place of: known only in lists that are maps.
pub(super) fn element_before<'a>(
    node: &'a Node,
    item: &'a Value,
    old: Option<&'a Value>,
) -> Option<&'a Value> {
    if node.list != ListKind::Map {
        return None;
    }
    let key = node.key_of(item);
    old?.as_array()?.iter().find(|old| node.key_of(old) == key)
}

fn object(
    value: &Value,
    old: Option<&Value>,
    node: &Node,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(fields) = value.as_object() else { return };
    let count = fields.len() as u64;
    if let Some(min) = node.min_properties.filter(|min| count < *min) {
        let why = format!("{path} in body should have at least {min} properties");
        errors.push(FieldError::invalid(path, count, why));
    }
    if let Some(max) = node.max_properties.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, count, max));
    }
    for name in &node.required {
        if !fields.contains_key(&**name) {
            errors.push(FieldError::required(below(path, name), ""));
        }
    }
    for (name, value) in fields {
        let Some(child) = node.child(name) else { continue };
        let before = if node.atomic_map { None } else { old.and_then(|old| old.get(name)) };
        check(value, before, child, &below(path, name), errors);
    }
}

fn junctors(value: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let tried = |schema: &Node| {
        let mut found = Vec::new();
        check(value, None, schema, path, &mut found);
        found
    };
    let mut whole =
        |why: String| errors.push(FieldError::invalid(path, shown_value(value, path), why));
    let place = evenkeel_apimachinery::status::quote(path);
    if !node.any_of.is_empty() && !node.int_or_string {
        let found: Vec<Vec<FieldError>> = node.any_of.iter().map(tried).collect();
        if found.iter().all(|f| !f.is_empty()) {
            whole(format!("{place} must validate at least one schema (anyOf)"));
            errors.extend(found.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
    let mut whole =
        |why: String| errors.push(FieldError::invalid(path, shown_value(value, path), why));
    if !node.one_of.is_empty() {
        let fits = node.one_of.iter().filter(|schema| tried(schema).is_empty()).count();
        if fits == 0 {
            whole(format!(
                "{place} must validate one and only one schema (oneOf). Found none valid"
            ));
        } else if fits > 1 {
            whole(format!(
                "{place} must validate one and only one schema (oneOf). Found {fits} valid alternatives"
            ));
        }
    }
    if node.not.as_deref().is_some_and(|schema| tried(schema).is_empty()) {
        whole(format!("{place} must not validate the schema (not)"));
    }
    for schema in &node.all_of {
        errors.extend(tried(schema));
    }
}

fn shown_value(value: &Value, path: &str) -> Value {
    if path.is_empty() { Value::from("") } else { value.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(schema: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Vec::new();
        check(value, old, &Node::new(schema), "", &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn says_what_upstream_says() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string", "maxLength": 3, "pattern": "^a"}, "n": {"type": "integer", "minimum": 1},
            "e": {"type": "string", "enum": ["x", "y"]}, "i": {"x-kubernetes-int-or-string": true},
            "f": {"type": "string", "format": "date-time"}, "l": {"type": "array", "maxItems": 1, "items": {"type": "number"}},
            "z": {"type": "integer", "anyOf": [{"minimum": 5}, {"multipleOf": 3}]}}});
        let value =
            json!({"a": "bcde", "n": 0, "e": "q", "i": true, "f": "x", "l": ["s", 1], "z": 4});
        let found = wrong(&schema, &value, None);
        let want = [
            "a: Too long: may not be more than 3 bytes",
            "a: Invalid value: \"bcde\": a in body should match '^a'",
            "e: Unsupported value: \"q\": supported values: \"x\", \"y\"",
            "f: Invalid value: \"x\": f in body must be of type date-time: \"x\"",
            "i: Invalid value: \"boolean\": i in body must be of type integer,string: \"boolean\"",
            "l: Too many: 2: must have at most 1 item",
            "l[0]: Invalid value: \"string\": l[0] in body must be of type number: \"string\"",
            "n: Invalid value: 0: n in body should be greater than or equal to 1",
            "z: Invalid value: 4: \"z\" must validate at least one schema (anyOf)",
        ];
        assert_eq!(found[..want.len()], want);
        assert_eq!(wrong(&schema, &json!({}), None), ["a: Required value"]);
        assert!(wrong(&schema, &value, Some(&value)).is_empty());
        let mut old = value.clone();
        old["n"] = json!(1);
        assert_eq!(wrong(&schema, &value, Some(&old)), [want[7]]);
    }
}
