//! How a value of a type is owned: as a whole, by its fields, or by its elements.

use serde_json::{Map, Value};

use super::element;
use crate::schema::node::{At, ListKind, Rest, Shape};

/// How a value is owned.
#[derive(Clone, Copy)]
pub(crate) enum Form<'a> {
    /// As a whole.
    Leaf,
    /// By its fields; `None` where nothing is known of them.
    Map(Option<At<'a>>),
    /// By its elements, of this type and told apart by these keys (by value where there are none).
    List { item: At<'a>, keys: &'a [Box<str>] },
}

/// The form of values of the type `at`; where nothing is known it is deduced from the value.
pub(crate) fn form<'a>(at: Option<At<'a>>, value: &Value) -> Form<'a> {
    let Some(place) = at else {
        return if value.is_object() || value.is_null() { Form::Map(None) } else { Form::Leaf };
    };
    match place.shape() {
        Shape::Any => form(None, value),
        Shape::Struct(s) if !s.atomic => Form::Map(at),
        Shape::Map { atomic: false, .. } => Form::Map(at),
        Shape::List { item, kind: ListKind::Set } => {
            Form::List { item: place.to(*item), keys: &[] }
        }
        Shape::List { item, kind: ListKind::Map(keys) } => {
            Form::List { item: place.to(*item), keys }
        }
        _ => Form::Leaf,
    }
}

/// The type of a field, and whether it is one that the type names.
pub(crate) fn field<'a>(at: Option<At<'a>>, name: &str) -> (Option<At<'a>>, bool) {
    let Some(at) = at else { return (None, false) };
    let named = at.as_struct().is_some_and(|s| s.field(name).is_some());
    (at.child(name), named)
}

/// Whether a field may be there at all.
pub(crate) fn is_declared(at: Option<At<'_>>, name: &str) -> bool {
    match at.and_then(At::as_struct) {
        Some(s) => s.field(name).is_some() || s.rest != Rest::Drop,
        None => true,
    }
}

/// The element of a list's item.
pub(crate) fn item_element(
    value: &Value,
    keys: &[Box<str>],
    item: At<'_>,
) -> Result<Box<str>, String> {
    if keys.is_empty() {
        element::of_value(value).map_err(str::to_owned)
    } else {
        element::of_item(value, keys, item)
    }
}

/// The entries of an object; null and anything else have none.
pub(crate) fn entries(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|m| !m.is_empty())
}

/// The items of a list; null and anything else have none.
pub(crate) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
