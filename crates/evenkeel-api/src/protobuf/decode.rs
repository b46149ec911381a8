//! Protobuf to JSON, as Go's JSON encoder would write the decoded struct.

#![deny(clippy::indexing_slicing)]

use base64::Engine;
use serde_json::{Map, Value};

use super::schema::{Descriptor, FieldDescriptor, Form, Kind, Label, Schema};
use crate::decode::{Reader, Wire, WireError};
use crate::json;
use crate::time::{self, Timestamp};

/// The JSON of a message that stands within `depth` arrays and objects of JSON. An envelope in a message goes on with the
/// depth of that message, so that the bound of [`json::MAX_DEPTH`] is one for all of them.
pub(super) fn decode(
    descriptor: &'static Descriptor,
    bytes: &[u8],
    depth: usize,
) -> Result<Value, WireError> {
    Decoder { depth }.message(descriptor, None, bytes)
}

struct Decoder {
    /// Arrays and objects of JSON around what is read.
    depth: usize,
}

impl Decoder {
    /// Reads one level deeper. What recurses is cut into small functions: in debug builds each level takes the stack of all
    /// variables of the functions that it passes through.
    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        if self.depth >= json::MAX_DEPTH {
            return Err(WireError::new(json::TOO_DEEP));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// A message; an earlier piece of it, if any, is gone on with.
    fn message(
        &mut self,
        descriptor: &'static Descriptor,
        earlier: Option<Value>,
        bytes: &[u8],
    ) -> Result<Value, WireError> {
        match descriptor.form {
            Form::Object => {
                let mut object = match earlier {
                    Some(Value::Object(object)) => object,
                    _ => Map::new(),
                };
                self.nested(|decoder| decoder.fields(descriptor, &mut object, bytes))?;
                Ok(Value::Object(object))
            }
            Form::List | Form::SchemaOrArray | Form::SchemaOrBool | Form::SchemaOrStrings => {
                self.variant(descriptor, bytes)
            }
            Form::Raw => read_raw(Reader::new(bytes), self.depth),
            _ => scalar(descriptor.form, Reader::new(bytes)),
        }
    }

    /// A message of which JSON shows one of its fields.
    fn variant(
        &mut self,
        descriptor: &'static Descriptor,
        bytes: &[u8],
    ) -> Result<Value, WireError> {
        let mut object = Map::new();
        self.fields(descriptor, &mut object, bytes)?;
        Ok(shown(descriptor, object))
    }

    fn fields(
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
            self.field(field, object, wire, &mut reader)
                .map_err(|error| error.field(&field.json))?;
        }
        complete(descriptor, object);
        Ok(())
    }

    fn field(
        &mut self,
        field: &'static FieldDescriptor,
        object: &mut Map<String, Value>,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        if field.json.is_empty() {
            let Kind::Message(index) = field.kind else { return reader.skip(field.number, wire) };
            return self.fields(Schema::get().message(index), object, reader.expect_bytes(wire)?);
        }
        match field.label {
            Label::One => self.one(field, object, wire, reader),
            Label::List => {
                let list = object.entry(&*field.json).or_insert_with(|| Value::Array(Vec::new()));
                if list.is_null() {
                    *list = Value::Array(Vec::new());
                }
                let Value::Array(items) = list else { return reader.skip(field.number, wire) };
                self.nested(|decoder| decoder.items(field, items, wire, reader))
            }
            Label::Map => {
                let map = object.entry(&*field.json).or_insert_with(|| Value::Object(Map::new()));
                if map.is_null() {
                    *map = Value::Object(Map::new());
                }
                let Value::Object(entries) = map else { return reader.skip(field.number, wire) };
                let bytes = reader.expect_bytes(wire)?;
                self.nested(|decoder| decoder.entry(field, entries, bytes))
            }
        }
    }

    fn one(
        &mut self,
        field: &'static FieldDescriptor,
        object: &mut Map<String, Value>,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let earlier = object.remove(&*field.json);
        let value = self.value(field.kind, earlier, wire, reader)?;
        if field.pointer || !omitted(field, &value) {
            object.insert(field.json.to_string(), value);
        }
        Ok(())
    }

    /// An item of a list, or several numbers of one.
    fn items(
        &mut self,
        field: &'static FieldDescriptor,
        items: &mut Vec<Value>,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        if wire != Wire::Len || !matches!(field.kind, Kind::Bool | Kind::Int32 | Kind::Int64) {
            let item = self.value(field.kind, None, wire, reader);
            items.push(item.map_err(|error| error.index(items.len()))?);
            return Ok(());
        }
        let mut numbers = Reader::new(reader.bytes()?);
        while !numbers.rest().is_empty() {
            items.push(number(field.kind, Wire::Varint, &mut numbers)?);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        field: &'static FieldDescriptor,
        entries: &mut Map<String, Value>,
        bytes: &[u8],
    ) -> Result<(), WireError> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            match number {
                1 => key = string(reader.expect_bytes(wire)?),
                2 => value = Some(self.value(field.kind, value.take(), wire, &mut reader)?),
                _ => reader.skip(number, wire)?,
            }
        }
        entries.insert(key, value.unwrap_or_else(|| zero(field.kind)));
        Ok(())
    }

    fn value(
        &mut self,
        kind: Kind,
        earlier: Option<Value>,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<Value, WireError> {
        let Kind::Message(index) = kind else { return number(kind, wire, reader) };
        self.message(Schema::get().message(index), earlier, reader.expect_bytes(wire)?)
    }
}

/// A value that is no message.
fn number(kind: Kind, wire: Wire, reader: &mut Reader<'_>) -> Result<Value, WireError> {
    Ok(match kind {
        Kind::String => string(reader.expect_bytes(wire)?).into(),
        Kind::Bytes => {
            base64::engine::general_purpose::STANDARD.encode(reader.expect_bytes(wire)?).into()
        }
        Kind::Bool => (reader.expect_varint(wire)? != 0).into(),
        Kind::Int32 => (reader.expect_varint(wire)? as i32).into(),
        Kind::Int64 => (reader.expect_varint(wire)? as i64).into(),
        Kind::Double => double(reader.expect_fixed64(wire)?),
        Kind::Message(_) => return Err(WireError::new("a message where a single value should be")),
    })
}

/// The one field that JSON shows of a message with several.
fn shown(descriptor: &Descriptor, mut object: Map<String, Value>) -> Value {
    let mut take = |at: usize| {
        descriptor
            .fields
            .get(at)
            .and_then(|field| object.remove(&*field.json))
            .filter(|value| !value.is_null())
    };
    match descriptor.form {
        Form::List => take(0).unwrap_or_else(|| Value::Array(Vec::new())),
        Form::SchemaOrBool => take(1).or_else(|| take(0)).unwrap_or(Value::Bool(false)),
        _ => take(1).or_else(|| take(0)).unwrap_or(Value::Null),
    }
}

/// A message that JSON shows as a single value.
fn scalar(form: Form, reader: Reader<'_>) -> Result<Value, WireError> {
    match form {
        Form::Time | Form::MicroTime => read_time(form, reader),
        Form::Quantity => read_quantity(reader),
        _ => read_int_or_string(reader),
    }
}

fn read_int_or_string(reader: Reader<'_>) -> Result<Value, WireError> {
    let (mut type_, mut int, mut text) = (0, 0, String::new());
    each(reader, |number, wire, reader| {
        match number {
            1 => type_ = reader.expect_varint(wire)?,
            2 => int = reader.expect_varint(wire)? as i32,
            3 => text = string(reader.expect_bytes(wire)?),
            _ => reader.skip(number, wire)?,
        }
        Ok(())
    })?;
    Ok(if type_ == 1 { text.into() } else { int.into() })
}

/// Adds what Go's structs hold by value and its encoder does not leave out.
fn complete(descriptor: &'static Descriptor, object: &mut Map<String, Value>) {
    for field in &descriptor.fields {
        if field.json.is_empty() {
            if let (Kind::Message(index), false) = (field.kind, field.pointer) {
                complete(Schema::get().message(index), object);
            }
            continue;
        }
        if object.contains_key(&*field.json) {
            continue;
        }
        let absent = match field.label {
            Label::One if !field.pointer => zero(field.kind),
            Label::One | Label::List | Label::Map => Value::Null,
        };
        let left_out = match field.label {
            Label::One if field.pointer => field.omit_empty || field.omit_zero,
            Label::One => omitted(field, &absent),
            Label::List | Label::Map => field.omit_empty,
        };
        if !left_out {
            object.insert(field.json.to_string(), absent);
        }
    }
}

/// Whether Go's encoder leaves out a value that is not a pointer.
fn omitted(field: &FieldDescriptor, value: &Value) -> bool {
    let is_struct = matches!(field.kind, Kind::Message(index) if Schema::get().message(index).form != Form::List);
    if is_struct {
        // To omitempty no struct is empty.
        return field.omit_zero && *value == zero(field.kind);
    }
    let empty = match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    };
    empty && (field.omit_empty || field.omit_zero)
}

/// The JSON of Go's zero value.
fn zero(kind: Kind) -> Value {
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
                    complete(descriptor, &mut object);
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

fn each(
    mut reader: Reader<'_>,
    mut field: impl FnMut(u32, Wire, &mut Reader<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    while let Some((number, wire)) = reader.tag()? {
        field(number, wire, &mut reader)?;
    }
    Ok(())
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Go writes whole floating-point numbers without a fraction.
fn double(bits: u64) -> Value {
    let double = f64::from_bits(bits);
    if double.fract() == 0.0 && double.abs() < 9e15 {
        (double as i64).into()
    } else {
        double.into()
    }
}

fn read_time(form: Form, reader: Reader<'_>) -> Result<Value, WireError> {
    let (mut seconds, mut nanos, mut set) = (0i64, 0i32, false);
    each(reader, |number, wire, reader| {
        set = true;
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
        .map_err(|_| WireError::new(format!("{seconds} seconds is no time")))?;
    Ok(match form {
        _ if !set || time == time::ZERO => Value::Null,
        Form::MicroTime => time::micros(time).into(),
        _ => time::seconds(time).into(),
    })
}

fn read_quantity(reader: Reader<'_>) -> Result<Value, WireError> {
    let mut text = String::new();
    each(reader, |number, wire, reader| {
        match number {
            1 => text = string(reader.expect_bytes(wire)?),
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

/// The text of any JSON, or an object that is encoded within, inside of `depth` arrays and objects.
fn read_raw(mut reader: Reader<'_>, depth: usize) -> Result<Value, WireError> {
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
        return super::decode_envelope(raw, depth)
            .map_err(|error| WireError::new(error.to_string()));
    }
    if json::text_is_deeper(raw, json::MAX_DEPTH.saturating_sub(depth)) {
        return Err(WireError::new(json::TOO_DEEP));
    }
    json::from_slice(raw).map_err(|error| WireError::new(error.to_string()))
}
