//! JSON of a patched object for quotes in errors. Upstream applies JSON and merge patches to the encoded object. It
//! decodes the values on the path of a patch as maps, and encodes these sorted by key. Other stored values keep the
//! order of Go's structs, and other values of the patch keep its order (`lazyNode` of the module
//! `gopkg.in/evanphx/json-patch.v4`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::PatchType;
use super::json_patch::{index, unescape};
use crate::decode::json::Json;
use crate::go_text::go_json_string;
use crate::schema::Schema;
use crate::schema::go_order::{child, enclosed, item, write_name, write_value};
use crate::schema::node::TypeRef;

/// Returns the JSON of `current` after a patch.
pub(super) fn patched_text(
    form: PatchType,
    current: &Value,
    patch: &Json<'_>,
    schema: Option<&Schema>,
) -> String {
    let schema = schema.filter(|schema| !schema.is_custom());
    let mut node = Node::Stored(current, schema.map(Schema::type_ref));
    match (form, patch) {
        (PatchType::Json, Json::Array(operations)) => {
            let _failed =
                operations.iter().try_for_each(|operation| node.apply_operation(operation));
        }
        (PatchType::Json, _) => {}
        _ => node.merge(patch),
    }
    let mut out = String::new();
    node.write(&mut out);
    out
}

/// A value in the patched object.
///
/// Upstream: `lazyNode`.
#[derive(Clone)]
enum Node<'a> {
    /// Stored value that upstream did not decode, with its type.
    Stored(&'a Value, Option<TypeRef<'a>>),
    /// Value of the patch that upstream did not decode.
    Sent(&'a Json<'a>),
    /// Object whose fields are decoded.
    Fields(BTreeMap<String, Node<'a>>),
    /// List whose items are decoded.
    Items(Vec<Node<'a>>),
}

impl<'a> Node<'a> {
    /// Decodes an object or a list.
    fn expand(&mut self) {
        match self {
            Self::Stored(Value::Object(fields), type_ref) => {
                let fields = fields.iter().map(|(name, value)| {
                    (name.clone(), Self::Stored(value, child(*type_ref, name)))
                });
                *self = Self::Fields(fields.collect());
            }
            Self::Stored(Value::Array(items), type_ref) => {
                let type_ref = item(*type_ref);
                *self =
                    Self::Items(items.iter().map(|value| Self::Stored(value, type_ref)).collect());
            }
            Self::Sent(Json::Object(entries)) => {
                let fields = entries
                    .iter()
                    .map(|(name, json)| (name.clone().into_owned(), Self::Sent(json)));
                *self = Self::Fields(fields.collect());
            }
            Self::Sent(Json::Array(items)) => {
                *self = Self::Items(items.iter().map(Self::Sent).collect());
            }
            _ => {}
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Stored(Value::Null, _) | Self::Sent(Json::Null))
    }

    /// Applies a merge patch.
    ///
    /// Upstream: `merge`, `mergeDocs`.
    fn merge(&mut self, patch: &'a Json<'a>) {
        self.expand();
        let (Self::Fields(fields), Json::Object(entries)) = (&mut *self, patch) else {
            let is_object = matches!(self, Self::Fields(_));
            *self = Self::Sent(patch);
            if !is_object {
                self.prune();
            }
            return;
        };
        for (name, json) in entries {
            match (json, fields.get_mut(name.as_ref())) {
                (Json::Null, _) => drop(fields.remove(name.as_ref())),
                (_, Some(before)) if !before.is_null() => before.merge(json),
                _ => {
                    let mut added = Self::Sent(json);
                    added.prune();
                    fields.insert(name.clone().into_owned(), added);
                }
            }
        }
    }

    /// Removes null entries of objects at every depth, which decodes all of the value.
    ///
    /// Upstream: `pruneNulls`.
    fn prune(&mut self) {
        self.expand();
        match self {
            Self::Fields(fields) => {
                fields.retain(|_, value| !value.is_null());
                fields.values_mut().for_each(Self::prune);
            }
            Self::Items(items) => items.iter_mut().for_each(Self::prune),
            _ => {}
        }
    }

    /// Applies an operation of a JSON patch; `None` if it is not applicable.
    fn apply_operation(&mut self, operation: &'a Json<'a>) -> Option<()> {
        let text = |name: &str| match operation.get(name) {
            Some(Json::String(text)) => Some(text.as_ref()),
            _ => None,
        };
        let value = || operation.get("value").map_or(Self::Sent(&Json::Null), Self::Sent);
        match text("op")? {
            "add" => self.insert(text("path")?, value()),
            "replace" => self.replace(text("path")?, value()),
            "remove" => self.take(text("path")?).map(drop),
            "move" => {
                let moved = self.take(text("from")?)?;
                self.insert(text("path")?, moved)
            }
            "copy" => {
                let copy = self.find(text("from")?)?.clone();
                self.insert(text("path")?, copy)
            }
            "test" => self.find(text("path")?).map(drop),
            _ => None,
        }
    }

    /// Decodes the values on the path of a pointer. Returns the innermost container and the last segment.
    fn walk<'p>(&mut self, pointer: &'p str) -> Option<(&mut Self, &'p str)> {
        let mut steps = pointer.split('/');
        let last = steps.next_back()?;
        let mut node = self;
        node.expand();
        for step in steps.skip(1) {
            node = node.child(step)?;
            node.expand();
        }
        Some((node, last))
    }

    /// Returns the field or item of this container with a key.
    fn child(&mut self, step: &str) -> Option<&mut Self> {
        match self {
            Self::Fields(fields) => fields.get_mut(&*unescape(step)),
            Self::Items(items) => {
                let index = index(step, items.len()).ok()?;
                items.get_mut(index)
            }
            _ => None,
        }
    }

    fn find(&mut self, pointer: &str) -> Option<&mut Self> {
        let (container, last) = self.walk(pointer)?;
        container.child(last)
    }

    /// Sets a field, or inserts an item into a list.
    fn insert(&mut self, pointer: &str, value: Self) -> Option<()> {
        match self.walk(pointer)? {
            (Self::Items(items), last) if last != "-" => {
                let index = index(last, items.len().saturating_add(1)).ok()?;
                items.insert(index, value);
                Some(())
            }
            (container, last) => container.set(last, value),
        }
    }

    /// Sets a field, or replaces an item of a list.
    fn replace(&mut self, pointer: &str, value: Self) -> Option<()> {
        let (container, last) = self.walk(pointer)?;
        container.set(last, value)
    }

    /// Sets a field or an item of this container. The key `-` appends to a list.
    fn set(&mut self, key: &str, value: Self) -> Option<()> {
        match self {
            Self::Fields(fields) => drop(fields.insert(unescape(key).into_owned(), value)),
            Self::Items(items) if key == "-" => items.push(value),
            Self::Items(items) => {
                let index = index(key, items.len()).ok()?;
                *items.get_mut(index)? = value;
            }
            _ => return None,
        }
        Some(())
    }

    /// Removes the value at a pointer and returns it.
    fn take(&mut self, pointer: &str) -> Option<Self> {
        match self.walk(pointer)? {
            (Self::Fields(fields), last) => fields.remove(&*unescape(last)),
            (Self::Items(items), last) => {
                let index = index(last, items.len()).ok()?;
                Some(items.remove(index))
            }
            _ => None,
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Stored(value, type_ref) => write_value(value, *type_ref, out),
            Self::Sent(json) => write_sent(json, out),
            Self::Fields(fields) => enclosed('{', '}', fields, out, |(name, value), out| {
                write_name(name, out);
                value.write(out);
            }),
            Self::Items(items) => enclosed('[', ']', items, out, Self::write),
        }
    }
}

/// Writes a value of the patch in the order of the patch.
fn write_sent(json: &Json<'_>, out: &mut String) {
    match json {
        Json::Object(entries) => enclosed('{', '}', entries, out, |(name, json), out| {
            write_name(name, out);
            write_sent(json, out);
        }),
        Json::Array(items) => enclosed('[', ']', items, out, write_sent),
        Json::String(text) => out.push_str(&go_json_string(text)),
        Json::Number(text) => out.push_str(text),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Null => out.push_str("null"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::json::parse;

    #[test]
    fn only_values_on_the_path_of_a_patch_are_sorted_by_key() {
        let schema = Schema::builtin("", "v1", "ConfigMap").expect("a built-in kind");
        let entry = json!({"apiVersion": "v1", "manager": "m", "operation": "Update"});
        let current = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "1", "a": "2"},
            "metadata": {"annotations": {"a": "b"}, "managedFields": [entry], "name": "c", "uid": "u"}});
        let text = |form, patch: &str| {
            patched_text(form, &current, &parse(patch.as_bytes()).expect("JSON"), Some(&schema))
        };
        let metadata = r#""metadata":{"name":"c","uid":"u","annotations":{"a":"b"},"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1"}]}"#;
        let sorted = r#""metadata":{"annotations":{"a":"b"},"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1"}],"name":5,"uid":"u"}"#;
        for (form, patch, want) in [
            (PatchType::Merge, r#"{"data": {"a": {"y": 1, "x": "<"}}}"#, format!(r#"{{"apiVersion":"v1","data":{{"a":{{"x":"\u003c","y":1}},"b":"1"}},"kind":"ConfigMap",{metadata}}}"#)),
            (PatchType::Merge, r#"{"metadata": {"name": 5}}"#, format!(r#"{{"apiVersion":"v1","data":{{"a":"2","b":"1"}},"kind":"ConfigMap",{sorted}}}"#)),
            // A list of the patch replaces the stored list. Pruning its nulls decodes it.
            (PatchType::Merge, r#"{"metadata": {"managedFields": [{"operation": "Update", "manager": "m", "time": null}]}}"#, r#"{"apiVersion":"v1","data":{"a":"2","b":"1"},"kind":"ConfigMap","metadata":{"annotations":{"a":"b"},"managedFields":[{"manager":"m","operation":"Update"}],"name":"c","uid":"u"}}"#.to_owned()),
            (PatchType::Json, r#"[{"op": "add", "path": "/metadata/name", "value": 5}]"#, format!(r#"{{"apiVersion":"v1","data":{{"a":"2","b":"1"}},"kind":"ConfigMap",{sorted}}}"#)),
            (PatchType::Json, r#"[{"op": "add", "path": "/metadata/managedFields/0", "value": {"z": 1, "a": 2}}]"#, r#"{"apiVersion":"v1","data":{"a":"2","b":"1"},"kind":"ConfigMap","metadata":{"annotations":{"a":"b"},"managedFields":[{"z":1,"a":2},{"manager":"m","operation":"Update","apiVersion":"v1"}],"name":"c","uid":"u"}}"#.to_owned()),
            (PatchType::Json, r#"[{"op": "move", "from": "/metadata/annotations", "path": "/x"}]"#, r#"{"apiVersion":"v1","data":{"a":"2","b":"1"},"kind":"ConfigMap","metadata":{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1"}],"name":"c","uid":"u"},"x":{"a":"b"}}"#.to_owned()),
        ] {
            assert_eq!(text(form, patch), want, "{patch}");
        }
    }
}
