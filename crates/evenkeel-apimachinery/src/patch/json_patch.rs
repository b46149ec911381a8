//! JSON patches (RFC 6902) with the extensions of upstream's library: `replace` adds a missing key of a map, negative
//! indices count from the end, and a missing value equals null.

use std::collections::HashSet;

use evenkeel_api::json;
use serde_json::Value;

use crate::decode::json::Json;
use crate::depth;
use crate::value::json_length;

/// Maximum number of operations in a patch.
///
/// Upstream: `maxJSONPatchOperations`.
pub(super) const MAX_OPERATIONS: usize = 10_000;

/// Maximum number of bytes of JSON that the `copy` operations of one patch may add: the limit of a request body.
///
/// Upstream: `AccumulatedCopySizeLimit` of json-patch.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Maximum number of values that the operations of one patch may touch in addition to the values that they name. Such
/// values are list items that shift after an insertion or a removal, and values below a value that moves deeper.
/// Without it, moves at the front of a long list would take a minute. It is far above the work of any patch of a useful
/// object: an object has at most 1.5 MiB.
const MAX_TOUCHED_VALUES: usize = 20_000_000;

/// Reason why a patch was rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatchError {
    /// An operation cannot be applied to the document. Upstream gives no reason.
    #[error("the patch does not fit the object")]
    NotApplicable,
    /// The `copy` operations would add this many bytes, more than the limit.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {0}, exceeding the limit {MAX_COPIED_BYTES}"
    )]
    CopiesTooMuch(usize),
    /// The document would nest deeper than [`json::MAX_DEPTH`].
    #[error("{}", depth::TooDeep)]
    TooDeep,
    /// The operations touch more than [`MAX_TOUCHED_VALUES`].
    #[error("The allowed maximum of values that a JSON patch moves is {MAX_TOUCHED_VALUES}")]
    TooMuchWork,
}

use PatchError::NotApplicable;

type PatchResult<T = ()> = Result<T, PatchError>;

/// Validates the structure of a patch. Returns the errors of its unknown and duplicate fields, or Go's decoding error.
pub(super) fn check(patch: &Json<'_>) -> Result<Vec<String>, String> {
    let operations = match patch {
        Json::Array(operations) => operations.as_slice(),
        Json::Null => &[],
        other => {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                other.json_type()
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
                    other.json_type()
                ));
            }
        };
        let mut seen: HashSet<&str> = HashSet::new();
        for (key, value) in entries {
            match (&**key, value) {
                ("op" | "path" | "from", Json::String(_) | Json::Null) | ("value", _) => {}
                ("op" | "path" | "from", other) => {
                    let form = other.json_type();
                    return Err(format!(
                        "json: cannot unmarshal {form} into Go struct field jsonPatchOp.{key} of type string"
                    ));
                }
                _ => unknown.push(format!("json patch unknown field \"[{i}].{key}\"")),
            }
            if !seen.insert(key) {
                unknown.push(format!("json patch duplicate field \"[{i}].{key}\""));
            }
        }
    }
    Ok(unknown)
}

/// Validates only that the patch is a list of objects, as upstream does for a request that ignores field errors. Returns
/// Go's decoding error.
///
/// Upstream: `DecodePatch` of json-patch.
pub(super) fn check_operations(patch: &Json<'_>) -> Result<(), String> {
    let refuse = |json: &Json<'_>, name: &str| {
        let form = json.json_type();
        Err(format!("json: cannot unmarshal {form} into Go value of type jsonpatch.{name}"))
    };
    let operations = match patch {
        Json::Array(operations) => operations.as_slice(),
        Json::Null => &[],
        other => return refuse(other, "Patch"),
    };
    match operations.iter().find(|json| !matches!(json, Json::Object(_) | Json::Null)) {
        Some(other) => refuse(other, "Operation"),
        None => Ok(()),
    }
}

/// Work of the operations of a patch so far.
#[derive(Default)]
struct Work {
    copied_bytes: usize,
    touched_values: usize,
}

impl Work {
    /// Adds the bytes of a copy.
    fn copy(&mut self, bytes: usize) -> PatchResult {
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
        match self.copied_bytes {
            ..=MAX_COPIED_BYTES => Ok(()),
            more => Err(PatchError::CopiesTooMuch(more)),
        }
    }

    /// Adds values that an operation touches.
    fn touch(&mut self, values: usize) -> PatchResult {
        self.touched_values = self.touched_values.saturating_add(values);
        if self.touched_values > MAX_TOUCHED_VALUES { Err(PatchError::TooMuchWork) } else { Ok(()) }
    }

    /// Adds a value and all values below it. The document's depth bounds the recursion.
    fn touch_all(&mut self, value: &Value) -> PatchResult {
        self.touch(1)?;
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.touch_all(item)),
            Value::Object(entries) => entries.values().try_for_each(|entry| self.touch_all(entry)),
            _ => Ok(()),
        }
    }
}

/// Applies all operations in order. After an error, the document is partly changed and unusable. After each
/// operation, it nests at most [`json::MAX_DEPTH`] deep.
pub(super) fn apply(document: &mut Value, patch: &Json<'_>) -> PatchResult {
    let Json::Array(operations) = patch else { return Ok(()) };
    let mut work = Work::default();
    operations.iter().try_for_each(|operation| apply_operation(document, operation, &mut work))
}

fn apply_operation(document: &mut Value, operation: &Json<'_>, work: &mut Work) -> PatchResult {
    let text = |name: &str| match operation.get(name) {
        Some(Json::String(text)) => Ok(text.as_ref()),
        _ => Err(NotApplicable),
    };
    let value = || operation.get("value").map_or(Value::Null, Json::to_value);
    match text("op")? {
        "add" => add(document, text("path")?, value(), work),
        "remove" => remove(document, text("path")?, work).map(drop),
        "replace" => replace(document, text("path")?, value()),
        "move" => {
            let (from, path) = (text("from")?, text("path")?);
            let moved = remove(document, from, work)?;
            // A value that moves to the same or a smaller depth cannot become too deep.
            if depth_of(path) > depth_of(from) {
                work.touch_all(&moved)?;
                check_depth(path, &moved)?;
            }
            insert(document, path, moved, work)
        }
        "copy" => {
            let source = get(document, text("from")?)?;
            work.copy(json_length(source))?;
            let copy = source.clone();
            add(document, text("path")?, copy, work)
        }
        "test" => test(document, text("path")?, &value()),
        _ => Err(NotApplicable),
    }
}

/// Returns the number of arrays and objects around the value at a path.
fn depth_of(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// Rejects a value that would nest the document too deeply at `path`.
fn check_depth(path: &str, value: &Value) -> PatchResult {
    match json::MAX_DEPTH.checked_sub(depth_of(path)) {
        Some(left) if !json::is_deeper(value, left) => Ok(()),
        _ => Err(PatchError::TooDeep),
    }
}

/// Returns the container of the value at a path, and the last key. Text before the first slash of a path is ignored.
fn container<'d, 'p>(
    document: &'d mut Value,
    path: &'p str,
) -> PatchResult<(&'d mut Value, std::borrow::Cow<'p, str>)> {
    let mut parts = path.split('/').skip(1).map(unescape);
    let mut key = parts.next().ok_or(NotApplicable)?;
    let mut container = document;
    for next in parts {
        container = match container {
            Value::Object(map) => map.get_mut(&*key),
            Value::Array(items) => index(&key, items.len()).ok().and_then(|i| items.get_mut(i)),
            _ => None,
        }
        .filter(|v| v.is_object() || v.is_array())
        .ok_or(NotApplicable)?;
        key = next;
    }
    Ok((container, key))
}

/// Decodes `~0` and `~1` of a JSON pointer.
pub(super) fn unescape(key: &str) -> std::borrow::Cow<'_, str> {
    if key.contains('~') { key.replace("~1", "/").replace("~0", "~").into() } else { key.into() }
}

/// Parses an index into a list of `length` elements. A negative index counts from the end.
pub(super) fn index(key: &str, length: usize) -> PatchResult<usize> {
    let actual: i64 = key.parse().map_err(|_| NotApplicable)?;
    let from_start = if actual < 0 { actual.saturating_add(length as i64) } else { actual };
    usize::try_from(from_start).ok().filter(|i| *i < length).ok_or(NotApplicable)
}

static NULL: Value = Value::Null;

fn get<'d>(document: &'d mut Value, path: &str) -> PatchResult<&'d Value> {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(map) => Ok(map.get(&*key).unwrap_or(&NULL)),
        Value::Array(items) => items.get(index(&key, items.len())?).ok_or(NotApplicable),
        _ => Err(NotApplicable),
    }
}

fn add(document: &mut Value, path: &str, value: Value, work: &mut Work) -> PatchResult {
    check_depth(path, &value)?;
    insert(document, path, value, work)
}

fn insert(document: &mut Value, path: &str, value: Value, work: &mut Work) -> PatchResult {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(map) => {
            map.insert(key.into_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = index(&key, items.len().saturating_add(1))?;
            work.touch(items.len().saturating_sub(index))?;
            items.insert(index, value);
        }
        _ => return Err(NotApplicable),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str, work: &mut Work) -> PatchResult<Value> {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(map) => map.remove(&*key).ok_or(NotApplicable),
        Value::Array(items) => {
            let index = index(&key, items.len())?;
            work.touch(items.len().saturating_sub(index))?;
            Ok(items.remove(index))
        }
        _ => Err(NotApplicable),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> PatchResult {
    if path.is_empty() {
        if !(value.is_object() || value.is_array()) {
            return Err(NotApplicable);
        }
        check_depth(path, &value)?;
        *document = value;
        return Ok(());
    }
    check_depth(path, &value)?;
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(map) => {
            map.insert(key.into_owned(), value);
        }
        Value::Array(items) => {
            let index = index(&key, items.len())?;
            *items.get_mut(index).ok_or(NotApplicable)? = value;
        }
        _ => return Err(NotApplicable),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, value: &Value) -> PatchResult {
    let found = if path.is_empty() { &*document } else { get(document, path)? };
    if found == value { Ok(()) } else { Err(NotApplicable) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::json::parse;

    fn patched(document: Value, patch: &str) -> PatchResult<Value> {
        let mut document = document;
        apply(&mut document, &parse(patch.as_bytes()).expect("valid")).map(|()| document)
    }

    #[test]
    fn extensions_of_upstreams_library_are_supported() {
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
    fn the_total_size_of_copies_is_limited() {
        let doubled = |times: usize| {
            let copies =
                (0..times).map(|i| format!(r#"{{"op":"copy","from":"/data","path":"/data/{i}"}}"#));
            format!("[{}]", copies.collect::<Vec<_>>().join(","))
        };
        let start = json!({"data": {"k": "0123456789"}});
        assert!(patched(start.clone(), &doubled(10)).is_ok());
        assert!(matches!(patched(start, &doubled(60)), Err(PatchError::CopiesTooMuch(_))));
        let big = json!({"data": "x".repeat(MAX_COPIED_BYTES / 2)});
        let copy = r#"{"op":"copy","from":"/data","path":"/a"}"#;
        assert!(patched(big.clone(), &format!("[{copy}]")).is_ok());
        let error = patched(big, &format!("[{copy},{copy}]")).expect_err("two are too much");
        let want = "Unable to complete the copy, the accumulated size increase of copy is 3145732, exceeding the limit 3145728";
        assert_eq!(error.to_string(), want);
    }

    /// Each move at the front of a list shifts all its items; each move to a greater depth looks at all that moves.
    #[test]
    fn the_work_of_moves_is_limited() {
        let front = r#"{"op":"move","from":"/l/0","path":"/l/0"}"#;
        let deeper =
            r#"{"op":"move","from":"/l","path":"/a/l"},{"op":"move","from":"/a/l","path":"/l"}"#;
        for operation in [front, deeper] {
            let patch = |times: usize| format!("[{}]", vec![operation; times].join(","));
            let list = |items: usize| json!({"l": vec![0; items], "a": {}});
            assert_eq!(patched(list(2_000), &patch(3_000)), Ok(list(2_000)), "{operation}");
            let refused = patched(list(100_000), &patch(3_000));
            assert_eq!(refused, Err(PatchError::TooMuchWork), "{operation}");
        }
    }

    #[test]
    fn operations_that_nest_too_deeply_are_refused() {
        let nest = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let deepest = json::MAX_DEPTH - 1;
        // The patch itself adds two levels around the value.
        let add = |path: &str, op: &str| {
            let value = nest(deepest - 1);
            format!(r#"[{{"op":"{op}","path":"{path}","value":{value}}}]"#)
        };
        for op in ["add", "replace"] {
            assert!(patched(json!({"a": {}}), &add("/a/b", op)).is_ok());
            let deeper = patched(json!({"a": {"b": {}}}), &add("/a/b/c", op));
            assert_eq!(deeper, Err(PatchError::TooDeep));
        }
        for op in ["copy", "move"] {
            let start = json!({"a": {"b": {}}, "v": json::from_slice::<Value>(nest(deepest).as_bytes()).expect("JSON")});
            let to = |path: &str| format!(r#"[{{"op":"{op}","from":"/v","path":"{path}"}}]"#);
            assert!(patched(start.clone(), &to("/w")).is_ok());
            assert_eq!(patched(start, &to("/a/b/c")), Err(PatchError::TooDeep));
        }
        // Each round moves `v` one level deeper into a new `v`.
        let rounds = (0..1000).map(|i| format!(r#"{{"op":"move","from":"/v","path":"/t"}},{{"op":"add","path":"/v","value":{{"i":{i}}}}},{{"op":"move","from":"/t","path":"/v/t"}}"#));
        let patch = format!("[{}]", rounds.collect::<Vec<_>>().join(","));
        assert_eq!(patched(json!({"v": {}}), &patch), Err(PatchError::TooDeep));
    }

    #[test]
    fn inapplicable_operations_and_malformed_patches_are_refused() {
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
