//! Access to fields of JSON objects by dotted paths, for defaults and validation.
//!
//! A path is a list of field names joined by dots. In the functions that visit values, `*` matches every item of a
//! list or value of a map, and a name that ends in `?` is not created if it is absent.

use std::io;

use serde_json::{Map, Value};

/// A JSON object.
pub type Object = Map<String, Value>;

/// Returns the length of a value as JSON, in bytes.
pub fn json_length(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing to a counter cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Returns Go's name for the type of an untyped value; `None` for null.
pub fn go_type(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    })
}

/// Returns the value at `path`. A null counts as absent.
pub fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = value;
    for name in path.split('.') {
        value = value.get(name)?;
    }
    (!value.is_null()).then_some(value)
}

/// Returns the value at `path` for mutation. A null counts as absent.
pub fn get_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut value = value;
    for name in path.split('.') {
        value = value.get_mut(name)?;
    }
    (!value.is_null()).then_some(value)
}

/// Returns the string at `path`; empty if absent, as in a Go struct.
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    get(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the integer at `path`.
pub fn int(value: &Value, path: &str) -> Option<i64> {
    get(value, path).and_then(Value::as_i64)
}

/// Returns whether the boolean at `path` is set and true.
pub fn flag(value: &Value, path: &str) -> bool {
    get(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns the list at `path`; empty if absent.
pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    get(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the map at `path`.
pub fn object<'a>(value: &'a Value, path: &str) -> Option<&'a Object> {
    get(value, path).and_then(Value::as_object)
}

/// Returns whether the value at `path` is absent, null, or an empty string, list or map.
pub fn is_empty(value: &Value, path: &str) -> bool {
    get(value, path).is_none_or(is_blank)
}

/// Returns whether a value is null or an empty string, list or map.
pub fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns whether Go's `omitempty` omits a value: null, `false`, 0, or an empty string, list or map.
pub fn is_omitted(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        other => is_blank(other),
    }
}

/// Returns whether two optional values are equal. Absent, null and empty values are equal.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let a = a.filter(|value| !is_blank(value));
    let b = b.filter(|value| !is_blank(value));
    a == b
}

/// Returns whether two values are equal. Absent, null and empty values are equal at every depth.
///
/// Upstream: `equality.Semantic.DeepEqual`.
pub fn same_meaning(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let within = |a: &Object, b: &Object| {
                a.iter().all(|(name, a)| same_meaning(a, b.get(name).unwrap_or(&Value::Null)))
            };
            within(a, b) && within(b, a)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_meaning(a, b))
        }
        (Value::Object(fields), Value::Null) | (Value::Null, Value::Object(fields)) => {
            fields.values().all(|value| same_meaning(value, &Value::Null))
        }
        (a, b) => a == b || is_blank(a) && is_blank(b),
    }
}

/// Returns the object at `path`, and creates it if absent; `None` if a value on the path is not an object.
pub fn object_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Object> {
    let mut value = value;
    if !path.is_empty() {
        for name in path.split('.') {
            value = child(value, name)?;
        }
    }
    if value.is_null() {
        *value = Value::Object(Object::new());
    }
    value.as_object_mut()
}

/// Sets the field at `path`, and creates missing parent objects.
pub fn set(value: &mut Value, path: &str, to: impl Into<Value>) {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    if let Some(fields) = object_mut(value, parent) {
        fields.insert(name.to_owned(), to.into());
    }
}

/// Removes the field at `path` and returns it.
pub fn remove(value: &mut Value, path: &str) -> Option<Value> {
    match path.rsplit_once('.') {
        Some((parent, name)) => get_mut(value, parent)?.as_object_mut()?.remove(name),
        None => value.as_object_mut()?.remove(path),
    }
}

/// Copies the field at `path` from another object, or removes it if that object lacks it.
pub fn copy(value: &mut Value, from: &Value, path: &str) {
    match get(from, path) {
        Some(kept) => set(value, path, kept.clone()),
        None => {
            remove(value, path);
        }
    }
}

/// Calls `visit` for every value that `path` matches; the empty path matches the value itself.
pub fn each(value: &mut Value, path: &str, visit: &mut dyn FnMut(&mut Value)) {
    if path.is_empty() {
        visit(value);
        return;
    }
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    if name == "*" {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| each(item, rest, visit)),
            Value::Object(fields) => fields.values_mut().for_each(|item| each(item, rest, visit)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    } else if let Some(name) = name.strip_suffix('?') {
        if let Some(next) = value.get_mut(name).filter(|next| !next.is_null()) {
            each(next, rest, visit);
        }
    } else if rest.starts_with('*') {
        if let Some(next) = value.get_mut(name) {
            each(next, rest, visit);
        }
    } else if let Some(next) = child(value, name) {
        each(next, rest, visit);
    }
}

/// Returns the field `name` of an object; an absent field is created as null. A null `value` becomes an object
/// first.
fn child<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    if value.is_null() {
        *value = Value::Object(Object::new());
    }
    let fields = value.as_object_mut()?;
    if !fields.contains_key(name) {
        fields.insert(name.to_owned(), Value::Null);
    }
    fields.get_mut(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_visits_items_and_skips_absent_optional_fields() {
        let mut pod = json!({"containers": [{"name": "a", "probe": {}}, {"name": "b"}]});
        each(&mut pod, "containers.*.probe?.period", &mut |v| *v = json!(10));
        each(&mut pod, "initContainers.*.probe?.period", &mut |v| *v = json!(10));
        assert_eq!(
            pod,
            json!({"containers": [{"name": "a", "probe": {"period": 10}}, {"name": "b"}]})
        );
    }

    #[test]
    fn set_creates_missing_parents() {
        let mut object = json!({});
        set(&mut object, "spec.strategy.type", "RollingUpdate");
        assert_eq!(text(&object, "spec.strategy.type"), "RollingUpdate");
        assert_eq!(remove(&mut object, "spec.strategy.type"), Some(json!("RollingUpdate")));
        assert!(is_empty(&object, "spec.strategy"));
    }
}
