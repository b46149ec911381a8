//! JSON text of a patched object, as errors quote it. Upstream applies JSON and merge patches to the encoded
//! object. It decodes the values that a patch changes as maps and encodes them sorted by key. All others keep Go's
//! encoding, in the order of the structs (`lazyNode` of the module `gopkg.in/evanphx/json-patch.v4`).

use serde_json::Value;

use crate::schema::Schema;
use crate::schema::node::{Shape, TypeRef};

/// Returns the JSON text of `object`, which is `current` after a patch.
pub(super) fn patched_text(object: &Value, current: &Value, schema: Option<&Schema>) -> String {
    let Some(schema) = schema.filter(|schema| !schema.is_custom()) else {
        return object.to_string();
    };
    let mut out = String::new();
    write(object, Origin::Stored(current), Some(schema.type_ref()), &mut out);
    out
}

/// Origin of a value in the patched object.
#[derive(Clone, Copy)]
enum Origin<'a> {
    /// The value is unchanged.
    Unchanged,
    /// The stored value is this one; the patch may have changed parts of it.
    Stored(&'a Value),
    /// The value comes from the patch.
    Patch,
}

impl<'a> Origin<'a> {
    /// Returns the origin of a part; `find` returns that part of the stored value.
    fn of_part(self, find: impl FnOnce(&'a Value) -> Option<&'a Value>) -> Self {
        match self {
            Self::Stored(stored) => find(stored).map_or(Self::Patch, Self::Stored),
            other => other,
        }
    }
}

/// Writes a value: unchanged structs in Go's order, all other objects sorted by key.
fn write(value: &Value, origin: Origin<'_>, type_ref: Option<TypeRef<'_>>, out: &mut String) {
    let origin = match origin {
        Origin::Stored(stored) if stored == value => Origin::Unchanged,
        other => other,
    };
    match value {
        Value::Object(fields) => {
            let go = type_ref
                .and_then(TypeRef::as_struct)
                .filter(|_| matches!(origin, Origin::Unchanged));
            let position = |name: &str| {
                go.map_or(0, |s| s.field(name).map_or(usize::MAX, |field| field.position))
            };
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_by_key(|name| (position(name), *name));
            enclosed('{', '}', names, out, |name, out| {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                let origin = origin.of_part(|stored| stored.get(name));
                write(&fields[name], origin, type_ref.and_then(|t| t.child(name)), out);
            });
        }
        Value::Array(items) => {
            let item_type = type_ref.and_then(|list| match list.shape() {
                Shape::List { item, .. } => Some(list.to(*item)),
                _ => None,
            });
            enclosed('[', ']', items.iter().enumerate(), out, |(index, item), out| {
                write(item, origin.of_part(|stored| stored.get(index)), item_type, out);
            });
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Writes items between brackets, separated by commas.
fn enclosed<T>(
    open: char,
    close: char,
    items: impl IntoIterator<Item = T>,
    out: &mut String,
    mut write: impl FnMut(T, &mut String),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use crate::group_version::GroupVersionKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_patch_leaves_alone_keeps_the_order_of_its_struct() {
        let kind =
            GroupVersionKind { group: "".into(), version: "v1".into(), kind: "ConfigMap".into() };
        let schema = Schema::of(&kind).expect("a built-in kind");
        let entry = json!({"apiVersion": "v1", "manager": "m", "operation": "Update"});
        let current = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "1", "a": "2"},
            "metadata": {"annotations": {"a": "b"}, "managedFields": [entry], "name": "c", "uid": "u"}});
        let text = |object: &Value| patched_text(object, &current, Some(&schema));
        let mut object = current.clone();
        object["data"]["a"] = json!({"y": 1, "x": "<"});
        assert_eq!(
            text(&object),
            r#"{"apiVersion":"v1","data":{"a":{"x":"<","y":1},"b":"1"},"kind":"ConfigMap","metadata":{"name":"c","uid":"u","annotations":{"a":"b"},"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1"}]}}"#
        );
        let mut object = current.clone();
        object["metadata"]["name"] = json!(5);
        assert_eq!(
            text(&object),
            r#"{"apiVersion":"v1","data":{"a":"2","b":"1"},"kind":"ConfigMap","metadata":{"annotations":{"a":"b"},"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1"}],"name":5,"uid":"u"}}"#
        );
        assert_eq!(patched_text(&object, &current, None), object.to_string());
    }
}
