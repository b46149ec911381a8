//! JSON patches (RFC 6902) with the liberties that upstream's library takes: `replace` of a missing key of a map sets it,
//! indices count from the end when negative, and a missing value equals null.

use serde_json::Value;

use crate::decode::json::Json;

/// More operations than this are refused.
pub(super) const MAX_OPERATIONS: usize = 10_000;

/// The patch cannot be applied to the document; upstream does not tell the client why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotApplicable;

type Applied<T = ()> = Result<T, NotApplicable>;

/// What is wrong with the form of a patch, worded as Go words it, and its fields that mean nothing.
pub(super) fn check(patch: &Json<'_>) -> Result<Vec<String>, String> {
    let operations = match patch {
        Json::Array(operations) => operations.as_slice(),
        Json::Null => &[],
        other => {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                other.form()
            ));
        }
    };
    let mut unknown = Vec::new();
    for (i, operation) in operations.iter().enumerate() {
        let entries = match operation {
            Json::Object(entries) => entries.as_slice(),
            Json::Null => &[],
            other => {
                return Err(format!(
                    "json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                    other.form()
                ));
            }
        };
        let mut seen: Vec<&str> = Vec::new();
        for (key, value) in entries {
            match (&**key, value) {
                ("op" | "path" | "from", Json::String(_) | Json::Null) | ("value", _) => {}
                ("op" | "path" | "from", other) => {
                    let form = other.form();
                    return Err(format!(
                        "json: cannot unmarshal {form} into Go struct field jsonPatchOp.{key} of type string"
                    ));
                }
                _ => unknown.push(format!("json patch unknown field \"[{i}].{key}\"")),
            }
            if seen.contains(&&**key) {
                unknown.push(format!("json patch duplicate field \"[{i}].{key}\""));
            }
            seen.push(key);
        }
    }
    Ok(unknown)
}

/// Applies all operations in turn; on failure the document is half changed and to be thrown away.
pub(super) fn apply(document: &mut Value, patch: &Json<'_>) -> Applied {
    let Json::Array(operations) = patch else { return Ok(()) };
    operations.iter().try_for_each(|operation| apply_one(document, operation))
}

fn apply_one(document: &mut Value, operation: &Json<'_>) -> Applied {
    let text = |name: &str| match operation.get(name) {
        Some(Json::String(text)) => Ok(text.as_ref()),
        _ => Err(NotApplicable),
    };
    let value = || operation.get("value").map_or(Value::Null, Json::to_value);
    match text("op")? {
        "add" => add(document, text("path")?, value()),
        "remove" => remove(document, text("path")?).map(drop),
        "replace" => replace(document, text("path")?, value()),
        "move" => {
            let moved = remove(document, text("from")?)?;
            add(document, text("path")?, moved)
        }
        "copy" => {
            let copied = get(document, text("from")?)?.clone();
            add(document, text("path")?, copied)
        }
        "test" => test(document, text("path")?, &value()),
        _ => Err(NotApplicable),
    }
}

/// The container that a path ends in, and the last key. A path need not begin with a slash: what is before the first one is ignored.
fn container<'d, 'p>(
    document: &'d mut Value,
    path: &'p str,
) -> Applied<(&'d mut Value, std::borrow::Cow<'p, str>)> {
    let mut parts = path.split('/').skip(1).map(unescape);
    let mut key = parts.next().ok_or(NotApplicable)?;
    let mut at = document;
    for next in parts {
        at = match at {
            Value::Object(map) => map.get_mut(&*key),
            Value::Array(items) => index(&key, items.len()).ok().and_then(|i| items.get_mut(i)),
            _ => None,
        }
        .filter(|v| v.is_object() || v.is_array())
        .ok_or(NotApplicable)?;
        key = next;
    }
    Ok((at, key))
}

fn unescape(key: &str) -> std::borrow::Cow<'_, str> {
    if key.contains('~') { key.replace("~1", "/").replace("~0", "~").into() } else { key.into() }
}

/// An index into a list of `length`; a negative one counts from the end.
fn index(key: &str, length: usize) -> Applied<usize> {
    let given: i64 = key.parse().map_err(|_| NotApplicable)?;
    let from_start = if given < 0 { given + length as i64 } else { given };
    usize::try_from(from_start).ok().filter(|i| *i < length).ok_or(NotApplicable)
}

static NULL: Value = Value::Null;

fn get<'d>(document: &'d mut Value, path: &str) -> Applied<&'d Value> {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(map) => Ok(map.get(&*key).unwrap_or(&NULL)),
        Value::Array(items) => Ok(&items[index(&key, items.len())?]),
        _ => Err(NotApplicable),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Applied {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(map) => {
            map.insert(key.into_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => items.insert(index(&key, items.len() + 1)?, value),
        _ => return Err(NotApplicable),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Applied<Value> {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(map) => map.remove(&*key).ok_or(NotApplicable),
        Value::Array(items) => Ok(items.remove(index(&key, items.len())?)),
        _ => Err(NotApplicable),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Applied {
    if path.is_empty() {
        if !(value.is_object() || value.is_array()) {
            return Err(NotApplicable);
        }
        *document = value;
        return Ok(());
    }
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(map) => {
            map.insert(key.into_owned(), value);
        }
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            items[at] = value;
        }
        _ => return Err(NotApplicable),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, value: &Value) -> Applied {
    let found = if path.is_empty() { &*document } else { get(document, path)? };
    if found == value { Ok(()) } else { Err(NotApplicable) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::json::parse;

    fn patched(document: Value, patch: &str) -> Applied<Value> {
        let mut document = document;
        apply(&mut document, &parse(patch.as_bytes()).expect("valid")).map(|()| document)
    }

    #[test]
    fn takes_upstreams_liberties() {
        let start = || json!({"data": {"k": "v"}, "l": [1, 2, 3]});
        for (patch, want) in [
            (
                r#"[{"op":"replace","path":"/data/x","value":"y"}]"#,
                json!({"data": {"k": "v", "x": "y"}, "l": [1, 2, 3]}),
            ),
            (r#"[{"op":"test","path":"/data/none","value":null}]"#, start()),
            (
                r#"[{"op":"add","path":"/l/-1","value":4}]"#,
                json!({"data": {"k": "v"}, "l": [1, 2, 3, 4]}),
            ),
            (
                r#"[{"op":"add","path":"/l/-","value":4}]"#,
                json!({"data": {"k": "v"}, "l": [1, 2, 3, 4]}),
            ),
            (r#"[{"op":"remove","path":"/l/-1"}]"#, json!({"data": {"k": "v"}, "l": [1, 2]})),
            (
                r#"[{"op":"add","path":"data/x","value":1}]"#,
                json!({"data": {"k": "v"}, "l": [1, 2, 3], "x": 1}),
            ),
            (
                r#"[{"op":"move","from":"/l/0","path":"/data/k"}]"#,
                json!({"data": {"k": 1}, "l": [2, 3]}),
            ),
            (
                r#"[{"op":"copy","from":"/data","path":"/l/0"}]"#,
                json!({"data": {"k": "v"}, "l": [{"k": "v"}, 1, 2, 3]}),
            ),
            (
                r#"[{"op":"add","path":"/data/a~1b~0c","value":1}]"#,
                json!({"data": {"k": "v", "a/b~c": 1}, "l": [1, 2, 3]}),
            ),
            (r#"[{"op":"add","path":"/data/k"}]"#, json!({"data": {"k": null}, "l": [1, 2, 3]})),
        ] {
            assert_eq!(patched(start(), patch), Ok(want), "{patch}");
        }
    }

    #[test]
    fn refuses_what_upstream_refuses() {
        for patch in [
            r#"[{"op":"remove","path":"/data/nope"}]"#,
            r#"[{"op":"add","path":"/nope/deep","value":1}]"#,
            r#"[{"op":"add","path":"","value":{}}]"#,
            r#"[{"op":"nope","path":"/data/k"}]"#,
            r#"[{"path":"/data/k"}]"#,
            r#"[{"op":"test","path":"/data/k","value":"other"}]"#,
            r#"[{"op":"replace","path":"/l/3","value":1}]"#,
            r#"[{"op":"move","from":"/data/none","path":"/data/x"}]"#,
        ] {
            assert_eq!(
                patched(json!({"data": {"k": "v"}, "l": [1, 2, 3]}), patch),
                Err(NotApplicable),
                "{patch}"
            );
        }
        let wrong = |text: &str| check(&parse(text.as_bytes()).expect("valid")).err();
        assert_eq!(
            wrong("{}").as_deref(),
            Some("json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp")
        );
        assert_eq!(
            wrong("[1]").as_deref(),
            Some("json: cannot unmarshal number into Go value of type handlers.jsonPatchOp")
        );
    }
}
