//! Conversion of JSON to protobuf.
//!
//! Go's encoder writes fields by number: values even if they are zero, pointers only if they are set, and all items
//! of lists and maps. A length precedes its contents, so messages are built from the end: bytes are appended in
//! reverse order, and the buffer is reversed once at the end.

use base64::Engine;
use serde_json::Value;

use super::schema::{Descriptor, FieldDescriptor, Form, Kind, Label, Schema};
use crate::decode::WireError;
use crate::json;
use crate::time;

/// Maximum nesting of messages. A level of JSON has at most two messages: the union of a schema, and the schema.
const MAX_DEPTH: usize = 2 * json::MAX_DEPTH + 16;

/// Encodes a message.
pub(super) fn encode(descriptor: &'static Descriptor, value: &Value) -> Result<Vec<u8>, WireError> {
    let mut out = ReverseEncoder { bytes: Vec::with_capacity(1024), depth: 0 };
    out.message(descriptor, value)?;
    out.bytes.reverse();
    Ok(out.bytes)
}

/// Encoder that appends bytes in reverse order.
struct ReverseEncoder {
    bytes: Vec<u8>,
    depth: usize,
}

impl ReverseEncoder {
    fn varint(&mut self, mut number: u64) {
        let mut buffer = [0u8; 10];
        let mut length = 0;
        loop {
            buffer[length] = (number & 0x7f) as u8 | if number > 0x7f { 0x80 } else { 0 };
            length += 1;
            number >>= 7;
            if number == 0 {
                break;
            }
        }
        self.push(&buffer[..length]);
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes.iter().rev());
    }

    fn tag(&mut self, number: u32, wire: u64) {
        self.varint(u64::from(number) << 3 | wire);
    }

    /// Writes the length of the bytes since `start`, and the tag of their field.
    fn close(&mut self, start: usize, number: u32) {
        self.varint((self.bytes.len() - start) as u64);
        self.tag(number, 2);
    }

    fn bytes_field(&mut self, number: u32, bytes: &[u8]) {
        let start = self.bytes.len();
        self.push(bytes);
        self.close(start, number);
    }

    fn varint_field(&mut self, number: u32, value: u64) {
        self.varint(value);
        self.tag(number, 0);
    }

    /// Writes the fields of a message; null is its zero value.
    fn message(&mut self, descriptor: &'static Descriptor, value: &Value) -> Result<(), WireError> {
        if self.depth == MAX_DEPTH {
            return Err(WireError::new(json::TOO_DEEP));
        }
        self.depth += 1;
        let written = self.form(descriptor, value);
        self.depth -= 1;
        written
    }

    fn form(&mut self, descriptor: &'static Descriptor, value: &Value) -> Result<(), WireError> {
        match descriptor.form {
            Form::Object => self.object(descriptor, value),
            Form::Time | Form::MicroTime => self.time(descriptor.form, value),
            Form::Quantity => self.quantity(value),
            Form::IntOrString => self.int_or_string(value),
            Form::Raw => {
                if !value.is_null() {
                    self.bytes_field(1, value.to_string().as_bytes());
                }
                Ok(())
            }
            Form::List => match descriptor.fields.first() {
                Some(field) => self.repeated_field(field, value),
                None => Ok(()),
            },
            Form::SchemaOrArray | Form::SchemaOrBool | Form::SchemaOrStrings => {
                self.union(descriptor, value)
            }
        }
    }

    fn quantity(&mut self, value: &Value) -> Result<(), WireError> {
        let text = match value {
            Value::Null => "0".into(),
            Value::String(text) => text.as_str().into(),
            Value::Number(number) => std::borrow::Cow::Owned(number.to_string()),
            other => return Err(expected("a quantity", other)),
        };
        let quantity = crate::quantity::Quantity::parse(&text)
            .map_err(|error| WireError::new(error.to_string()))?;
        self.bytes_field(1, quantity.to_string().as_bytes());
        Ok(())
    }

    fn int_or_string(&mut self, value: &Value) -> Result<(), WireError> {
        let (type_, int, text) = match value {
            Value::Null => (0, 0, ""),
            Value::Number(_) => (0, integer(value, i64::from(i32::MIN), i64::from(i32::MAX))?, ""),
            Value::String(text) => (1, 0, text.as_str()),
            other => return Err(expected("a number or a string", other)),
        };
        self.bytes_field(3, text.as_bytes());
        self.varint_field(2, int as u64);
        self.varint_field(1, type_);
        Ok(())
    }

    /// Writes a schema, or the boolean or list that is allowed in its place.
    fn union(&mut self, descriptor: &'static Descriptor, value: &Value) -> Result<(), WireError> {
        let [first, second] = &*descriptor.fields else {
            return Err(WireError::new("the recorded message has changed"));
        };
        match (descriptor.form, value) {
            (_, Value::Null) if descriptor.form != Form::SchemaOrBool => Ok(()),
            (Form::SchemaOrBool, Value::Null) => self.singular_field(first, &Value::Bool(false)),
            (Form::SchemaOrBool, Value::Bool(_)) => self.singular_field(first, value),
            (Form::SchemaOrBool, _) => {
                self.singular_field(second, value)?;
                self.singular_field(first, &Value::Bool(true))
            }
            (_, Value::Array(_)) => self.repeated_field(second, value),
            _ => self.singular_field(first, value),
        }
    }

    fn time(&mut self, form: Form, value: &Value) -> Result<(), WireError> {
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
        self.varint_field(2, nanos as u64);
        self.varint_field(1, seconds as u64);
        Ok(())
    }

    fn object(&mut self, descriptor: &'static Descriptor, value: &Value) -> Result<(), WireError> {
        if !matches!(value, Value::Object(_) | Value::Null) {
            return Err(expected("an object", value));
        }
        for field in descriptor.fields.iter().rev() {
            // JSON has the fields of an inlined message in the same object.
            let inlined = field.json.is_empty();
            let value =
                if inlined { value } else { value.get(&*field.json).unwrap_or(&Value::Null) };
            let written = match field.label {
                Label::Repeated => self.repeated_field(field, value),
                Label::Map => self.map_field(field, value),
                Label::Singular if field.pointer && inlined => self.inlined_pointer(field, value),
                Label::Singular if value.is_null() && field.pointer => Ok(()),
                Label::Singular => self.singular_field(field, value),
            };
            written.map_err(|error| error.field(&field.json))?;
        }
        Ok(())
    }

    /// Writes a pointer to an inlined struct, which is set if any of the struct's fields is.
    fn inlined_pointer(
        &mut self,
        field: &'static FieldDescriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        let Kind::Message(index) = field.kind else { return self.singular_field(field, value) };
        let fields = &Schema::get().message(index).fields;
        if fields.iter().any(|field| value.get(&*field.json).is_some_and(|value| !value.is_null()))
        {
            return self.singular_field(field, value);
        }
        Ok(())
    }

    fn singular_field(
        &mut self,
        field: &'static FieldDescriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        self.value(field.number, field.kind, value)
    }

    fn value(&mut self, number: u32, kind: Kind, value: &Value) -> Result<(), WireError> {
        match (kind, value) {
            // Go's encoder omits nil bytes but writes empty ones.
            (Kind::Bytes, Value::Null) => {}
            (Kind::String, Value::Null) => self.bytes_field(number, b""),
            (Kind::String, Value::String(text)) => self.bytes_field(number, text.as_bytes()),
            (Kind::String, other) => return Err(expected("a string", other)),
            (Kind::Bytes, Value::String(text)) => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                self.bytes_field(
                    number,
                    &bytes.map_err(|error| WireError::new(format!("base64: {error}")))?,
                );
            }
            (Kind::Bytes, other) => return Err(expected("base64", other)),
            (Kind::Bool, Value::Null) => self.varint_field(number, 0),
            (Kind::Bool, Value::Bool(set)) => self.varint_field(number, u64::from(*set)),
            (Kind::Bool, other) => return Err(expected("true or false", other)),
            (Kind::Int32, value) => self.varint_field(
                number,
                integer(value, i64::from(i32::MIN), i64::from(i32::MAX))? as u64,
            ),
            (Kind::Int64, value) => {
                self.varint_field(number, integer(value, i64::MIN, i64::MAX)? as u64);
            }
            (Kind::Double, value) => {
                let double = match value {
                    Value::Null => 0.0,
                    _ => value.as_f64().ok_or_else(|| expected("a number", value))?,
                };
                self.push(&double.to_bits().to_le_bytes());
                self.tag(number, 1);
            }
            (Kind::Message(index), value) => {
                let start = self.bytes.len();
                self.message(Schema::get().message(index), value)?;
                self.close(start, number);
            }
        }
        Ok(())
    }

    fn repeated_field(
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
            self.singular_field(field, item).map_err(|error| error.index(index))?;
        }
        Ok(())
    }

    fn map_field(
        &mut self,
        field: &'static FieldDescriptor,
        value: &Value,
    ) -> Result<(), WireError> {
        let entries = match value {
            Value::Null => return Ok(()),
            Value::Object(entries) => entries,
            other => return Err(expected("an object", other)),
        };
        let mut sorted: Vec<(&String, &Value)> = entries.iter().collect();
        sorted.sort_unstable_by(|a, b| b.0.cmp(a.0));
        for (key, value) in sorted {
            let start = self.bytes.len();
            self.value(2, field.kind, value)?;
            self.bytes_field(1, key.as_bytes());
            self.close(start, field.number);
        }
        Ok(())
    }
}

fn integer(value: &Value, min: i64, max: i64) -> Result<i64, WireError> {
    let number = match value {
        Value::Null => Some(0),
        Value::Number(number) => number.as_i64().or_else(|| {
            number
                .as_f64()
                .filter(|float| float.fract() == 0.0 && float.abs() < 9e15)
                .map(|float| float as i64)
        }),
        other => return Err(expected("a number", other)),
    };
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| WireError::new(format!("{value} is no whole number in range")))
}

#[cold]
fn expected(what: &str, found: &Value) -> WireError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    WireError::new(format!("{found} where {what} should be"))
}
