//! Granularity of ownership: a value is owned as a whole, by field, or by list item.

use serde_json::{Map, Value};

use super::path_element;
use crate::schema::node::{ListKind, Rest, Shape, TypeRef};

/// How a value is merged, and which parts of it managers own.
#[derive(Clone, Copy)]
pub(crate) enum MergeType<'a> {
    /// The value as a whole.
    Atomic,
    /// Each field; `None` if the schema does not specify the type.
    Map(Option<TypeRef<'a>>),
    /// Each item, identified by these keys, or by its value if `keys` is empty.
    AssociativeList { item: TypeRef<'a>, keys: &'a [Box<str>] },
}

/// Returns how values of a type merge. Without a type, the value decides.
pub(crate) fn merge_type<'a>(type_ref: Option<TypeRef<'a>>, value: &Value) -> MergeType<'a> {
    let Some(type_ref) = type_ref else {
        return if value.is_object() || value.is_null() {
            MergeType::Map(None)
        } else {
            MergeType::Atomic
        };
    };
    match type_ref.shape() {
        Shape::Any => merge_type(None, value),
        Shape::Struct(s) if !s.atomic => MergeType::Map(Some(type_ref)),
        Shape::Map { atomic: false, .. } => MergeType::Map(Some(type_ref)),
        Shape::List { item, kind: ListKind::Set } => {
            MergeType::AssociativeList { item: type_ref.to(*item), keys: &[] }
        }
        Shape::List { item, kind: ListKind::Map(keys) } => {
            MergeType::AssociativeList { item: type_ref.to(*item), keys }
        }
        _ => MergeType::Atomic,
    }
}

/// Returns the type of a field; `None` if the schema does not specify it.
pub(crate) fn field_type<'a>(type_ref: Option<TypeRef<'a>>, name: &str) -> Option<TypeRef<'a>> {
    type_ref?.child(name)
}

/// Returns whether the type is a struct that declares the field by name, as opposed to a map with this key.
pub(crate) fn is_named_field(type_ref: Option<TypeRef<'_>>, name: &str) -> bool {
    let fields = type_ref.and_then(TypeRef::as_struct);
    fields.is_some_and(|fields| fields.field(name).is_some())
}

/// Returns whether the type allows a field of that name.
pub(crate) fn is_declared(type_ref: Option<TypeRef<'_>>, name: &str) -> bool {
    match type_ref.and_then(TypeRef::as_struct) {
        Some(s) => s.field(name).is_some() || s.rest != Rest::Drop,
        None => true,
    }
}

/// Returns the path element of a list item.
pub(crate) fn item_element(
    value: &Value,
    keys: &[Box<str>],
    item: TypeRef<'_>,
) -> Result<Box<str>, String> {
    if keys.is_empty() {
        path_element::of_value(value).map_err(str::to_owned)
    } else {
        path_element::of_item(value, keys, item)
    }
}

/// Returns whether a value can be a list item, so that [`item_element`] returns its path element.
pub(crate) fn is_item(value: &Value, keys: &[Box<str>], item: TypeRef<'_>) -> bool {
    if keys.is_empty() {
        !matches!(value, Value::Object(_) | Value::Array(_) | Value::Null)
    } else {
        path_element::is_item(value, keys, item)
    }
}

/// Returns the entries of an object; `None` if it is empty or not an object.
pub(crate) fn entries(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|m| !m.is_empty())
}

/// Returns the items of a list; empty for anything else.
pub(crate) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use serde_json::json;

    #[test]
    fn items_are_the_values_that_have_a_path_element() {
        let pod = Schema::builtin("", "v1", "Pod").expect("a built-in kind");
        let list = |path: &[&str]| {
            let type_ref = path.iter().try_fold(pod.type_ref(), |parent, name| parent.child(name));
            type_ref.expect("a field of pods")
        };
        let values = json!([null, 1, "a", true, [], {}, {"name": "a"}, {"name": null}, {"ip": "1.1.1.1"}, {"key": "k"}]);
        for path in
            [&["metadata", "finalizers"][..], &["spec", "containers"], &["status", "podIPs"]]
        {
            let MergeType::AssociativeList { item, keys } =
                merge_type(Some(list(path)), &Value::Null)
            else {
                panic!("{path:?} has no keys");
            };
            for value in values.as_array().expect("a list") {
                let element = item_element(value, keys, item);
                assert_eq!(is_item(value, keys, item), element.is_ok(), "{path:?} {value}");
            }
        }
    }
}
