//! The JSON of a patched object as errors quote it. Upstream applies JSON and merge patches to the encoded object: what a
//! patch changes is decoded as maps and encoded sorted by key, all else stays as Go encoded it, in the order of its structs
//! (`lazyNode` of the module `gopkg.in/evanphx/json-patch.v4`).

use serde_json::Value;

use crate::schema::Schema;
use crate::schema::node::{Shape, TypeRef};

/// Returns the JSON of `object`, which a patch made of `current`.
pub(super) fn patched_text(object: &Value, current: &Value, schema: Option<&Schema>) -> String {
    let mut out = String::new();
    write(object, Some(current), schema.map(Schema::type_ref), &mut out);
    out
}

/// Writes a value: in Go's order where it is as it was, else sorted. New values are as the patch has them: sorted here.
fn write(value: &Value, current: Option<&Value>, type_ref: Option<TypeRef<'_>>, out: &mut String) {
    let is_unchanged = current == Some(value);
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            let position = |name: &str| {
                let known = type_ref.and_then(TypeRef::as_struct).filter(|_| is_unchanged);
                known.map_or(0, |s| s.field(name).map_or(usize::MAX, |field| field.position))
            };
            names.sort_by(|a, b| (position(a), a).cmp(&(position(b), b)));
            enclosed('{', '}', names, out, |name, out| {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                let current = current.and_then(|current| current.get(name));
                write(&fields[name], current, type_ref.and_then(|t| t.child(name)), out);
            });
        }
        Value::Array(items) => {
            let item_type = type_ref.and_then(|list| match list.shape() {
                Shape::List { item, .. } => Some(list.to(*item)),
                _ => None,
            });
            enclosed('[', ']', items.iter().enumerate(), out, |(index, item), out| {
                write(item, current.and_then(|current| current.get(index)), item_type, out);
            });
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

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
