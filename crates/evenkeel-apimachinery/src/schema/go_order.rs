//! Encoding of values in the order of Go's structs.

use serde_json::Value;

use super::node::{Shape, TypeRef};
use crate::go_text::go_json_string;

/// Returns the type of a field. The types `JSONSchemaPropsOr…` are not recorded, so they have the type of the schema
/// that they contain.
pub(crate) fn child<'a>(type_ref: Option<TypeRef<'a>>, name: &str) -> Option<TypeRef<'a>> {
    let owner = type_ref?;
    let field = owner.child(name)?;
    let is_schema = matches!(field.shape(), Shape::Any)
        && field.node().go.starts_with("v1.JSONSchemaPropsOr")
        && &*owner.node().go == "v1.JSONSchemaProps";
    Some(if is_schema { owner } else { field })
}

/// Returns the type of a list's items.
pub(crate) fn item(type_ref: Option<TypeRef<'_>>) -> Option<TypeRef<'_>> {
    let list = type_ref?;
    match list.shape() {
        Shape::List { item, .. } => Some(list.to(*item)),
        _ => None,
    }
}

/// Writes a value, with the fields of structs in Go's order.
pub(crate) fn write_value(value: &Value, type_ref: Option<TypeRef<'_>>, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let go = type_ref.and_then(TypeRef::as_struct);
            let position = |name: &str| {
                go.map_or(0, |s| s.field(name).map_or(usize::MAX, |field| field.position))
            };
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| (position(name), *name));
            enclosed('{', '}', fields, out, |(name, value), out| {
                write_name(name, out);
                write_value(value, child(type_ref, name), out);
            });
        }
        Value::Array(items) => {
            enclosed('[', ']', items, out, |value, out| write_value(value, item(type_ref), out));
        }
        Value::String(text) => out.push_str(&go_json_string(text)),
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Writes the name of a field.
pub(crate) fn write_name(name: &str, out: &mut String) {
    out.push_str(&go_json_string(name));
    out.push(':');
}

/// Writes items between brackets, separated by commas.
pub(crate) fn enclosed<T>(
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
