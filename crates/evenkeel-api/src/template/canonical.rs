//! Canonical form of a pod spec.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::Value;

use super::push_json;
use crate::protobuf::schema::{Descriptor, FieldDescriptor, Form, Kind, Label, Schema};
use crate::quantity::Quantity;

/// Returns a message's JSON with sorted keys and canonical quantities.
///
/// - It omits values that upstream's semantic equality treats as absent: nulls, empty lists and maps, zero values, and
///   zero structs that Go holds by value.
/// - It keeps empty values that Go holds by pointer (`emptyDir: {}`), and fields that this release does not know.
/// - It contains the zero values of fields without `omitempty`, because Go's encoder always writes them.
pub(super) fn canonical(message: &str, value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(_) => push_object(&mut text, Schema::get().named(message), value),
        _ => push_object(&mut text, Schema::get().named(message), &Value::Null),
    }
    text
}

fn push_object(text: &mut String, descriptor: Option<&'static Descriptor>, object: &Value) {
    let present = object.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let mut fields: Vec<(&str, Cow<'_, Value>)> =
        present.map(|(name, value)| (name.as_str(), Cow::Borrowed(value))).collect();
    if let Some(descriptor) = descriptor {
        add_required(descriptor, &mut fields);
    }
    if !fields.is_sorted_by_key(|(name, _)| *name) {
        fields.sort_unstable_by_key(|(name, _)| *name);
    }
    text.push('{');
    for (name, value) in fields {
        let end_of_previous_field = text.len();
        if !text.ends_with('{') {
            text.push(',');
        }
        push_json(text, name);
        text.push(':');
        let start_of_value = text.len();
        let field = descriptor.and_then(|descriptor| find(descriptor, name));
        match field {
            Some(field) => push_field(text, field, &value),
            None => push_value(text, None, &value),
        }
        if field.is_some_and(|field| equals_absence(field, &text[start_of_value..])) {
            text.truncate(end_of_previous_field);
        }
    }
    text.push('}');
}

/// Adds the zero values that Go's encoder always writes.
fn add_required(descriptor: &'static Descriptor, fields: &mut Vec<(&str, Cow<'_, Value>)>) {
    for field in &descriptor.fields {
        if field.label != Label::Singular || field.pointer || field.omit_empty {
            continue;
        }
        let zero = match field.kind {
            Kind::Message(index) if field.json.is_empty() => {
                add_required(Schema::get().message(index), fields);
                continue;
            }
            Kind::Message(_) | Kind::Bytes => continue,
            Kind::String => Value::from(""),
            Kind::Bool => Value::from(false),
            Kind::Int32 | Kind::Int64 | Kind::Double => Value::from(0),
        };
        if !fields.iter().any(|(name, _)| *name == &*field.json) {
            fields.push((&field.json, Cow::Owned(zero)));
        }
    }
}

/// Returns a field by its JSON name, including fields of inlined messages.
fn find(descriptor: &'static Descriptor, name: &str) -> Option<&'static FieldDescriptor> {
    descriptor.fields.iter().find_map(|field| match field.kind {
        Kind::Message(index) if field.json.is_empty() => find(Schema::get().message(index), name),
        _ => (*field.json == *name).then_some(field),
    })
}

/// Returns whether a field's value, in canonical JSON, is equivalent to the absence of the field.
fn equals_absence(field: &FieldDescriptor, text: &str) -> bool {
    match field.label {
        Label::Repeated => text == "[]",
        Label::Map => text == "{}",
        Label::Singular if field.pointer => false,
        Label::Singular => match field.kind {
            Kind::Message(index) => {
                let descriptor = Schema::get().message(index);
                match descriptor.form {
                    Form::Object => {
                        let mut zero = String::new();
                        push_object(&mut zero, Some(descriptor), &Value::Null);
                        text == zero
                    }
                    Form::IntOrString => text == "0",
                    Form::Quantity => text == "\"0\"",
                    _ => false,
                }
            }
            _ => field.omit_empty && matches!(text, "\"\"" | "0" | "false"),
        },
    }
}

fn push_field(text: &mut String, field: &'static FieldDescriptor, value: &Value) {
    match (field.label, value) {
        (Label::Repeated, Value::Array(items)) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_value(text, Some(field.kind), item);
            }
            text.push(']');
        }
        (Label::Map, Value::Object(entries)) => {
            let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_json(text, key);
                text.push(':');
                push_value(text, Some(field.kind), value);
            }
            text.push('}');
        }
        (Label::Singular, value) => push_value(text, Some(field.kind), value),
        // The value has the wrong type; the server will reject it.
        (Label::Repeated | Label::Map, value) => push_value(text, None, value),
    }
}

fn push_value(text: &mut String, kind: Option<Kind>, value: &Value) {
    let descriptor = match kind {
        Some(Kind::Message(index)) => Some(Schema::get().message(index)),
        _ => None,
    };
    match (descriptor.map(|descriptor| descriptor.form), value) {
        (Some(Form::Object), Value::Object(_)) => push_object(text, descriptor, value),
        (Some(Form::Quantity), Value::String(quantity)) => push_quantity(text, quantity),
        (Some(Form::Quantity), Value::Number(number)) => push_quantity(text, &number.to_string()),
        (_, Value::String(string)) => push_json(text, string),
        // `serde_json` sorts the keys of unknown fields. Writing to a string cannot fail.
        (_, value) => drop(write!(text, "{value}")),
    }
}

fn push_quantity(text: &mut String, quantity: &str) {
    match Quantity::parse(quantity) {
        Ok(quantity) => push_json(text, &quantity.to_string()),
        Err(_) => push_json(text, quantity),
    }
}
