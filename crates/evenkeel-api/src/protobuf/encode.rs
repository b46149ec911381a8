//! Conversion of JSON to protobuf.
//!
//! Go's protobuf encoder writes fields in the order of their numbers. It writes values even if they are zero, pointers
//! only if they are set, and all items of lists and maps.
//!
//! A length precedes the contents that it counts. As Go's encoder does, this one therefore begins with the last byte
//! of a message: it appends bytes in reverse order, and reverses the buffer once at the end.

use base64::Engine;
use serde_json::Value;

use super::schema::{Descriptor, FieldDescriptor, Form, Kind, Label, Schema};
use crate::decode::WireError;
use crate::json;
use crate::time;

/// Maximum nesting of messages. A level of JSON has at most two messages: a union such as `JSONSchemaPropsOrBool`, and
/// the schema in it. 16 more allow for messages that JSON does not show as objects.
const MAX_DEPTH: usize = 2 * json::MAX_DEPTH + 16;

/// Encodes a message.
pub(super) fn encode(descriptor: &'static Descriptor, value: &Value) -> Result<Vec<u8>, WireError> {
    let mut out = ReverseEncoder { bytes: Vec::with_capacity(1024), depth: 0 };
    out.write_message(descriptor, value)?;
    out.bytes.reverse();
    Ok(out.bytes)
}

/// Encoder that appends bytes in reverse order.
struct ReverseEncoder {
    /// Bytes in reverse order.
    bytes: Vec<u8>,
    /// Number of messages around the current value.
    depth: usize,
}

/// Wire type of integers and booleans.
const VARINT: u64 = 0;
/// Wire type of doubles.
const FIXED64: u64 = 1;
/// Wire type of values with a length prefix: strings, bytes and messages.
const LENGTH_DELIMITED: u64 = 2;

impl ReverseEncoder {
    fn write_varint(&mut self, mut number: u64) {
        let mut buffer = [0u8; 10];
        let mut length = 0;
        loop {
            // The highest bit of a byte is set if more bytes follow.
            let continuation = if number > 0x7f { 0x80 } else { 0 };
            buffer[length] = (number & 0x7f) as u8 | continuation;
            length += 1;
            number >>= 7;
            if number == 0 {
                break;
            }
        }
        self.push_reversed(&buffer[..length]);
    }

    /// Appends bytes in reverse order.
    fn push_reversed(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes.iter().rev());
    }

    fn write_tag(&mut self, number: u32, wire: u64) {
        self.write_varint(u64::from(number) << 3 | wire);
    }

    /// Writes the length of the bytes since `start`, and the tag of their field.
    fn write_length_and_tag(&mut self, start: usize, number: u32) {
        self.write_varint((self.bytes.len() - start) as u64);
        self.write_tag(number, LENGTH_DELIMITED);
    }

    fn write_bytes_field(&mut self, number: u32, bytes: &[u8]) {
        let start = self.bytes.len();
        self.push_reversed(bytes);
        self.write_length_and_tag(start, number);
    }

    fn write_varint_field(&mut self, number: u32, value: u64) {
        self.write_varint(value);
        self.write_tag(number, VARINT);
    }

    /// Writes a message without its length. A null value is encoded as the zero value of the message.
    fn write_message(
        &mut self,
        descriptor: &'static Descriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        if self.depth == MAX_DEPTH {
            return Err(WireError::new(json::TOO_DEEP));
        }
        self.depth += 1;
        let result = self.write_message_form(descriptor, value);
        self.depth -= 1;
        result
    }

    /// Writes a message according to its JSON representation.
    fn write_message_form(
        &mut self,
        descriptor: &'static Descriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        match descriptor.form {
            Form::Object => self.write_object(descriptor, value),
            Form::Time | Form::MicroTime => self.write_time(descriptor.form, value),
            Form::Quantity => self.write_quantity(value),
            Form::IntOrString => self.write_int_or_string(value),
            Form::Raw => {
                if !value.is_null() {
                    self.write_bytes_field(1, value.to_string().as_bytes());
                }
                Ok(())
            }
            Form::List => match descriptor.fields.first() {
                Some(field) => self.write_repeated_field(field, value),
                None => Ok(()),
            },
            Form::SchemaOrArray | Form::SchemaOrBool | Form::SchemaOrStrings => {
                self.write_union(descriptor, value)
            }
        }
    }

    fn write_quantity(&mut self, value: &Value) -> Result<(), WireError> {
        let text = match value {
            Value::Null => "0".into(),
            Value::String(text) => text.as_str().into(),
            Value::Number(number) => std::borrow::Cow::Owned(number.to_string()),
            other => return Err(expected("a quantity", other)),
        };
        let quantity = crate::quantity::Quantity::parse(&text)
            .map_err(|error| WireError::new(error.to_string()))?;
        self.write_bytes_field(1, quantity.to_string().as_bytes());
        Ok(())
    }

    fn write_int_or_string(&mut self, value: &Value) -> Result<(), WireError> {
        let (type_, int, text) = match value {
            Value::Null => (0, 0, ""),
            Value::Number(_) => (0, integer(value, i64::from(i32::MIN), i64::from(i32::MAX))?, ""),
            Value::String(text) => (1, 0, text.as_str()),
            other => return Err(expected("a number or a string", other)),
        };
        self.write_bytes_field(3, text.as_bytes());
        self.write_varint_field(2, int as u64);
        self.write_varint_field(1, type_);
        Ok(())
    }

    /// Writes a union: a schema, or the boolean or list that is allowed instead of a schema. Null means false in a
    /// `SchemaOrBool`, and an absent union otherwise.
    fn write_union(
        &mut self,
        descriptor: &'static Descriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        let [first, second] = &*descriptor.fields else {
            return Err(WireError::new("the recorded message has changed"));
        };
        match (descriptor.form, value) {
            (form, Value::Null) if form != Form::SchemaOrBool => Ok(()),
            (Form::SchemaOrBool, Value::Null) => {
                self.write_singular_field(first, &Value::Bool(false))
            }
            (Form::SchemaOrBool, Value::Bool(_)) => self.write_singular_field(first, value),
            (Form::SchemaOrBool, _) => {
                self.write_singular_field(second, value)?;
                self.write_singular_field(first, &Value::Bool(true))
            }
            (_, Value::Array(_)) => self.write_repeated_field(second, value),
            _ => self.write_singular_field(first, value),
        }
    }

    fn write_time(&mut self, form: Form, value: &Value) -> Result<(), WireError> {
        let text = match value {
            Value::Null => return Ok(()),
            Value::String(text) => text,
            other => return Err(expected("a time", other)),
        };
        let time = time::parse(text).map_err(|error| WireError::new(error.to_string()))?;
        if time == time::ZERO {
            return Ok(());
        }
        let nanos =
            if form == Form::MicroTime { time.subsec_nanosecond() / 1000 * 1000 } else { 0 };
        // Before 1970, jiff has negative nanoseconds, but Go counts up from the previous second.
        let (seconds, nanos) = if time.subsec_nanosecond() < 0 {
            (time.as_second() - 1, (nanos + 1_000_000_000) % 1_000_000_000)
        } else {
            (time.as_second(), nanos)
        };
        self.write_varint_field(2, nanos as u64);
        self.write_varint_field(1, seconds as u64);
        Ok(())
    }

    fn write_object(
        &mut self,
        descriptor: &'static Descriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        if !matches!(value, Value::Object(_) | Value::Null) {
            return Err(expected("an object", value));
        }
        for field in descriptor.fields.iter().rev() {
            // JSON has the fields of an inlined message in the same object.
            let is_inlined = field.json.is_empty();
            let value =
                if is_inlined { value } else { value.get(&*field.json).unwrap_or(&Value::Null) };
            let result = match field.label {
                Label::Repeated => self.write_repeated_field(field, value),
                Label::Map => self.write_map_field(field, value),
                Label::Singular if field.pointer && is_inlined => {
                    self.write_inlined_pointer(field, value)
                }
                Label::Singular if value.is_null() && field.pointer => Ok(()),
                Label::Singular => self.write_singular_field(field, value),
            };
            result.map_err(|error| error.at_field(&field.json))?;
        }
        Ok(())
    }

    /// Writes a pointer to an inlined struct. The pointer is set if any field of the struct is present.
    fn write_inlined_pointer(
        &mut self,
        field: &'static FieldDescriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        let Kind::Message(index) = field.kind else {
            return self.write_singular_field(field, value);
        };
        let is_present =
            |field: &FieldDescriptor| value.get(&*field.json).is_some_and(|value| !value.is_null());
        if Schema::get().message(index).fields.iter().any(is_present) {
            return self.write_singular_field(field, value);
        }
        Ok(())
    }

    fn write_singular_field(
        &mut self,
        field: &'static FieldDescriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        self.write_value(field.number, field.kind, value)
    }

    /// Writes a single value as the field with this number.
    fn write_value(&mut self, number: u32, kind: Kind, value: &Value) -> Result<(), WireError> {
        match (kind, value) {
            // Go's encoder omits nil bytes but writes empty ones.
            (Kind::Bytes, Value::Null) => {}
            (Kind::String, Value::Null) => self.write_bytes_field(number, b""),
            (Kind::String, Value::String(text)) => self.write_bytes_field(number, text.as_bytes()),
            (Kind::String, other) => return Err(expected("a string", other)),
            (Kind::Bytes, Value::String(text)) => {
                let bytes = base64::engine::general_purpose::STANDARD
                    .decode(text)
                    .map_err(|error| WireError::new(format!("base64: {error}")))?;
                self.write_bytes_field(number, &bytes);
            }
            (Kind::Bytes, other) => return Err(expected("base64", other)),
            (Kind::Bool, Value::Null) => self.write_varint_field(number, 0),
            (Kind::Bool, Value::Bool(flag)) => self.write_varint_field(number, u64::from(*flag)),
            (Kind::Bool, other) => return Err(expected("true or false", other)),
            (Kind::Int32, value) => {
                let int = integer(value, i64::from(i32::MIN), i64::from(i32::MAX))?;
                self.write_varint_field(number, int as u64);
            }
            (Kind::Int64, value) => {
                let int = integer(value, i64::MIN, i64::MAX)?;
                self.write_varint_field(number, int as u64);
            }
            (Kind::Double, value) => {
                let double = match value {
                    Value::Null => 0.0,
                    _ => value.as_f64().ok_or_else(|| expected("a number", value))?,
                };
                self.push_reversed(&double.to_bits().to_le_bytes());
                self.write_tag(number, FIXED64);
            }
            (Kind::Message(index), value) => {
                let start = self.bytes.len();
                self.write_message(Schema::get().message(index), value)?;
                self.write_length_and_tag(start, number);
            }
        }
        Ok(())
    }

    fn write_repeated_field(
        &mut self,
        field: &'static FieldDescriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        let items = match value {
            Value::Null => return Ok(()),
            Value::Array(items) => items,
            other => return Err(expected("a list", other)),
        };
        for (index, item) in items.iter().enumerate().rev() {
            self.write_singular_field(field, item).map_err(|error| error.at_index(index))?;
        }
        Ok(())
    }

    fn write_map_field(
        &mut self,
        field: &'static FieldDescriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        let entries = match value {
            Value::Null => return Ok(()),
            Value::Object(entries) => entries,
            other => return Err(expected("an object", other)),
        };
        // Entries are written in reverse order, so the last key comes first.
        let mut sorted: Vec<(&String, &Value)> = entries.iter().collect();
        sorted.sort_unstable_by(|(key_a, _), (key_b, _)| key_b.cmp(key_a));
        for (key, value) in sorted {
            // An entry is a message whose field 1 is the key and field 2 the value.
            let start = self.bytes.len();
            self.write_value(2, field.kind, value)?;
            self.write_bytes_field(1, key.as_bytes());
            self.write_length_and_tag(start, field.number);
        }
        Ok(())
    }
}

/// Returns the integer in a JSON value. Also accepts an integer in floating-point notation, such as `1e3`.
fn integer(value: &Value, min: i64, max: i64) -> Result<i64, WireError> {
    let number = match value {
        Value::Null => Some(0),
        Value::Number(number) => number.as_i64().or_else(|| {
            // Below 2^53, about 9e15, a double represents every integer exactly.
            let is_exact_integer = |float: &f64| float.fract() == 0.0 && float.abs() < 9e15;
            number.as_f64().filter(is_exact_integer).map(|float| float as i64)
        }),
        other => return Err(expected("a number", other)),
    };
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| WireError::new(format!("{value} is not a whole number in range")))
}

/// Returns the error for a JSON value of the wrong type.
#[cold]
fn expected(expected: &str, found: &Value) -> WireError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    WireError::new(format!("{found} where {expected} should be"))
}
