//! Conversion of protobuf to the JSON that Go's JSON encoder writes for the same object.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

use base64::Engine;
use serde_json::{Map, Value};

use super::budget::Budget;
use super::schema::{Descriptor, FieldDescriptor, Form, Kind, Label, Schema};
use crate::decode::{Reader, Wire, WireError};
use crate::json;
use crate::time::{self, Timestamp};

/// Decodes a message into JSON. A message in the envelope of a `RawExtension` draws on the budget of the outer message, so
/// that [`json::MAX_DEPTH`] limits all levels together, and the number of values is that of all messages.
pub(super) fn decode(
    descriptor: &'static Descriptor,
    bytes: &[u8],
    budget: &mut Budget,
) -> Result<Value, WireError> {
    Decoder { budget }.decode_message(descriptor, None, bytes)
}

struct Decoder<'b> {
    budget: &'b mut Budget,
}

impl Decoder<'_> {
    /// Runs `read` one level deeper.
    ///
    /// The recursive functions of the decoder are small, because in debug builds each level needs stack for all variables
    /// of its functions.
    fn decode_nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        self.budget.enter()?;
        let result = read(self);
        self.budget.leave();
        result
    }

    /// Decodes a message. Merges its fields into `earlier`, the value of a previous occurrence, if any.
    fn decode_message(
        &mut self,
        descriptor: &'static Descriptor,
        earlier: Option<Value>,
        bytes: &[u8],
    ) -> Result<Value, WireError> {
        // Each occurrence after the first one visits all fields again.
        let repeated_work = if earlier.is_some() { descriptor.fields.len() } else { 0 };
        self.budget.draw(repeated_work.saturating_add(1))?;
        match descriptor.form {
            Form::Object => {
                let mut object = match earlier {
                    Some(Value::Object(object)) => object,
                    _ => Map::new(),
                };
                self.decode_nested(|decoder| {
                    decoder.decode_fields(descriptor, &mut object, bytes)
                })?;
                Ok(Value::Object(object))
            }
            Form::List | Form::SchemaOrArray | Form::SchemaOrBool | Form::SchemaOrStrings => {
                self.decode_union(descriptor, bytes)
            }
            Form::Raw => decode_raw(Reader::new(bytes), self.budget),
            _ => decode_special_type(descriptor.form, Reader::new(bytes)),
        }
    }

    /// Decodes a message that JSON represents by one of its fields.
    fn decode_union(
        &mut self,
        descriptor: &'static Descriptor,
        bytes: &[u8],
    ) -> Result<Value, WireError> {
        let mut object = Map::new();
        self.decode_fields(descriptor, &mut object, bytes)?;
        Ok(union_value(descriptor, object))
    }

    /// Decodes all fields of a message into `object` and adds zero values for absent ones.
    fn decode_fields(
        &mut self,
        descriptor: &'static Descriptor,
        object: &mut Map<String, Value>,
        bytes: &[u8],
    ) -> Result<(), WireError> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            let Some(field) = descriptor.field(number) else {
                reader.skip(number, wire)?;
                continue;
            };
            self.decode_field(field, object, wire, &mut reader)
                .map_err(|error| error.at_field(&field.json))?;
        }
        let before = object.len();
        add_zero_values(descriptor, object);
        self.budget.draw(object.len().saturating_sub(before))
    }

    /// Decodes one occurrence of a field and adds it to `object`.
    fn decode_field(
        &mut self,
        field: &'static FieldDescriptor,
        object: &mut Map<String, Value>,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let is_inlined = field.json.is_empty();
        if is_inlined {
            let Kind::Message(index) = field.kind else { return reader.skip(field.number, wire) };
            let inlined = Schema::get().message(index);
            self.budget.draw(inlined.fields.len())?;
            return self.decode_fields(inlined, object, reader.expect_bytes(wire)?);
        }
        match field.label {
            Label::Singular => self.decode_singular_field(field, object, wire, reader),
            Label::Repeated => {
                let list = object.entry(&*field.json).or_insert_with(|| Value::Array(Vec::new()));
                if list.is_null() {
                    *list = Value::Array(Vec::new());
                }
                let Value::Array(items) = list else { return reader.skip(field.number, wire) };
                self.decode_nested(|decoder| {
                    decoder.decode_repeated_items(field, items, wire, reader)
                })
            }
            Label::Map => {
                let map = object.entry(&*field.json).or_insert_with(|| Value::Object(Map::new()));
                if map.is_null() {
                    *map = Value::Object(Map::new());
                }
                let Value::Object(entries) = map else { return reader.skip(field.number, wire) };
                let bytes = reader.expect_bytes(wire)?;
                self.decode_nested(|decoder| decoder.decode_map_entry(field, entries, bytes))
            }
        }
    }

    /// Decodes a field that is neither repeated nor a map.
    fn decode_singular_field(
        &mut self,
        field: &'static FieldDescriptor,
        object: &mut Map<String, Value>,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let earlier = object.remove(&*field.json);
        let value = self.decode_value(field.kind, earlier, wire, reader)?;
        if field.pointer || !is_omitted(field, &value) {
            object.insert(field.json.to_string(), value);
        }
        Ok(())
    }

    /// Decodes an item of a repeated field, or several scalars in packed encoding.
    fn decode_repeated_items(
        &mut self,
        field: &'static FieldDescriptor,
        items: &mut Vec<Value>,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let is_packed =
            wire == Wire::Len && matches!(field.kind, Kind::Bool | Kind::Int32 | Kind::Int64);
        if !is_packed {
            let item = self.decode_value(field.kind, None, wire, reader);
            items.push(item.map_err(|error| error.at_index(items.len()))?);
            return Ok(());
        }
        let mut packed = Reader::new(reader.bytes()?);
        while !packed.rest().is_empty() {
            self.budget.draw(1)?;
            items.push(decode_scalar(field.kind, Wire::Varint, &mut packed)?);
        }
        Ok(())
    }

    /// Decodes an entry of a map field: key 1, value 2.
    fn decode_map_entry(
        &mut self,
        field: &'static FieldDescriptor,
        entries: &mut Map<String, Value>,
        bytes: &[u8],
    ) -> Result<(), WireError> {
        self.budget.draw(1)?;
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            match number {
                1 => key = lossy_string(reader.expect_bytes(wire)?),
                2 => {
                    value = Some(self.decode_value(field.kind, value.take(), wire, &mut reader)?);
                }
                _ => reader.skip(number, wire)?,
            }
        }
        entries.insert(key, value.unwrap_or_else(|| zero_value(field.kind)));
        Ok(())
    }

    /// Decodes a value. Merges a message into `earlier`, the value of a previous occurrence of the field, if any.
    fn decode_value(
        &mut self,
        kind: Kind,
        earlier: Option<Value>,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<Value, WireError> {
        let Kind::Message(index) = kind else {
            self.budget.draw(1)?;
            return decode_scalar(kind, wire, reader);
        };
        self.decode_message(Schema::get().message(index), earlier, reader.expect_bytes(wire)?)
    }
}

/// Decodes a value other than a message.
fn decode_scalar(kind: Kind, wire: Wire, reader: &mut Reader<'_>) -> Result<Value, WireError> {
    Ok(match kind {
        Kind::String => lossy_string(reader.expect_bytes(wire)?).into(),
        Kind::Bytes => {
            base64::engine::general_purpose::STANDARD.encode(reader.expect_bytes(wire)?).into()
        }
        Kind::Bool => (reader.expect_varint(wire)? != 0).into(),
        Kind::Int32 => (reader.expect_varint(wire)? as i32).into(),
        Kind::Int64 => (reader.expect_varint(wire)? as i64).into(),
        Kind::Double => double_to_json(reader.expect_fixed64(wire)?),
        Kind::Message(_) => return Err(WireError::new("a message where a single value should be")),
    })
}

/// Returns the field that represents the message in JSON: the only field of a list, or the one of two alternatives
/// that is set. `SchemaOrBool` has the boolean first and the schema second, which takes precedence. The other unions
/// have the schema first and the list second.
fn union_value(descriptor: &Descriptor, mut object: Map<String, Value>) -> Value {
    let mut remove_field = |index: usize| {
        descriptor
            .fields
            .get(index)
            .and_then(|field| object.remove(&*field.json))
            .filter(|value| !value.is_null())
    };
    match descriptor.form {
        Form::List => remove_field(0).unwrap_or_else(|| Value::Array(Vec::new())),
        Form::SchemaOrBool => {
            remove_field(1).or_else(|| remove_field(0)).unwrap_or(Value::Bool(false))
        }
        _ => remove_field(1).or_else(|| remove_field(0)).unwrap_or(Value::Null),
    }
}

/// Decodes a message with its own JSON encoder in Go: a time, a quantity, or an int-or-string.
fn decode_special_type(form: Form, reader: Reader<'_>) -> Result<Value, WireError> {
    match form {
        Form::Time | Form::MicroTime => decode_time(form, reader),
        Form::Quantity => decode_quantity(reader),
        _ => decode_int_or_string(reader),
    }
}

/// Decodes an `IntOrString`. Its field `type` is 0 for an integer and 1 for a string.
fn decode_int_or_string(reader: Reader<'_>) -> Result<Value, WireError> {
    let (mut type_, mut int, mut text) = (0, 0, String::new());
    for_each_field(reader, |number, wire, reader| {
        match number {
            1 => type_ = reader.expect_varint(wire)?,
            2 => int = reader.expect_varint(wire)? as i32,
            3 => text = lossy_string(reader.expect_bytes(wire)?),
            _ => reader.skip(number, wire)?,
        }
        Ok(())
    })?;
    Ok(if type_ == 1 { text.into() } else { int.into() })
}

/// Adds the absent fields that Go's JSON encoder does not omit: zero values, and null for pointers, lists and maps.
fn add_zero_values(descriptor: &'static Descriptor, object: &mut Map<String, Value>) {
    for field in &descriptor.fields {
        let is_inlined = field.json.is_empty();
        if is_inlined {
            if let Kind::Message(index) = field.kind
                && !field.pointer
            {
                add_zero_values(Schema::get().message(index), object);
            }
            continue;
        }
        if object.contains_key(&*field.json) {
            continue;
        }
        let value = match field.label {
            Label::Singular if !field.pointer => zero_value(field.kind),
            Label::Singular | Label::Repeated | Label::Map => Value::Null,
        };
        let omitted = match field.label {
            Label::Singular if field.pointer => field.omit_empty || field.omit_zero,
            Label::Singular => is_omitted(field, &value),
            Label::Repeated | Label::Map => field.omit_empty,
        };
        if !omitted {
            object.insert(field.json.to_string(), value);
        }
    }
}

/// Returns whether Go's JSON encoder omits a value that is not a pointer.
fn is_omitted(field: &FieldDescriptor, value: &Value) -> bool {
    let is_struct = match field.kind {
        Kind::Message(index) => Schema::get().message(index).form != Form::List,
        _ => false,
    };
    if is_struct {
        // `omitempty` never applies to a struct.
        return field.omit_zero && *value == zero_value(field.kind);
    }
    let is_empty = match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    };
    is_empty && (field.omit_empty || field.omit_zero)
}

/// Returns the JSON of Go's zero value.
fn zero_value(kind: Kind) -> Value {
    match kind {
        Kind::String => "".into(),
        Kind::Bytes => Value::Null,
        Kind::Bool => false.into(),
        Kind::Int32 | Kind::Int64 | Kind::Double => 0.into(),
        Kind::Message(index) => {
            let descriptor = Schema::get().message(index);
            match descriptor.form {
                Form::Object => {
                    let mut object = Map::new();
                    add_zero_values(descriptor, &mut object);
                    Value::Object(object)
                }
                Form::Time
                | Form::MicroTime
                | Form::Raw
                | Form::List
                | Form::SchemaOrArray
                | Form::SchemaOrStrings => Value::Null,
                Form::Quantity => "0".into(),
                Form::IntOrString => 0.into(),
                Form::SchemaOrBool => false.into(),
            }
        }
    }
}

/// Calls `field` with the number and wire type of each field of a message.
fn for_each_field(
    mut reader: Reader<'_>,
    mut field: impl FnMut(u32, Wire, &mut Reader<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    while let Some((number, wire)) = reader.tag()? {
        field(number, wire, &mut reader)?;
    }
    Ok(())
}

/// Converts bytes to a string, and replaces invalid UTF-8.
fn lossy_string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Converts a floating-point number as Go's JSON encoder does: an integral number has no fraction.
fn double_to_json(bits: u64) -> Value {
    let double = f64::from_bits(bits);
    // Below 2^53, about 9e15, a double represents every integer exactly.
    if double.fract() == 0.0 && double.abs() < 9e15 {
        (double as i64).into()
    } else {
        double.into()
    }
}

/// Decodes a time. A message without fields is Go's zero time, whose JSON is null.
fn decode_time(form: Form, reader: Reader<'_>) -> Result<Value, WireError> {
    let (mut seconds, mut nanos, mut has_fields) = (0i64, 0i32, false);
    for_each_field(reader, |number, wire, reader| {
        has_fields = true;
        match number {
            1 => seconds = reader.expect_varint(wire)? as i64,
            2 => nanos = reader.expect_varint(wire)? as i32,
            _ => reader.skip(number, wire)?,
        }
        Ok(())
    })?;
    if form == Form::Time {
        nanos = 0;
    }
    let time = Timestamp::new(seconds, nanos)
        .map_err(|_| WireError::new(format!("invalid time: {seconds} seconds")))?;
    Ok(match form {
        _ if !has_fields || time == time::ZERO => Value::Null,
        Form::MicroTime => time::micros(time).into(),
        _ => time::seconds(time).into(),
    })
}

fn decode_quantity(reader: Reader<'_>) -> Result<Value, WireError> {
    let mut text = String::new();
    for_each_field(reader, |number, wire, reader| {
        match number {
            1 => text = lossy_string(reader.expect_bytes(wire)?),
            _ => reader.skip(number, wire)?,
        }
        Ok(())
    })?;
    if text.is_empty() {
        return Ok("0".into());
    }
    let quantity = crate::quantity::Quantity::parse(&text)
        .map_err(|error| WireError::new(error.to_string()))?;
    Ok(quantity.to_string().into())
}

/// Decodes a `RawExtension`. It contains JSON, or an object in a protobuf envelope.
fn decode_raw(mut reader: Reader<'_>, budget: &mut Budget) -> Result<Value, WireError> {
    let mut raw: &[u8] = &[];
    while let Some((number, wire)) = reader.tag()? {
        match number {
            1 => raw = reader.expect_bytes(wire)?,
            _ => reader.skip(number, wire)?,
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    if raw.starts_with(super::MAGIC) {
        return super::decode_envelope(raw, budget)
            .map_err(|error| WireError::new(error.to_string()));
    }
    if json::is_nested_deeper(raw, budget.levels()) {
        return Err(WireError::new(json::TOO_DEEP));
    }
    budget.draw(json::max_values(raw))?;
    json::from_slice(raw).map_err(|error| WireError::new(error.to_string()))
}
