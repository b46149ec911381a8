//! JSON decoding: nulls count as absent, and unknown fields are skipped.
//!
//! A [`Slot`] of each field defines how the field is read. All code that is generic over `serde`'s deserializers works
//! on slots. It is therefore compiled once, and not for each of some thousand types.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;

use super::Field;
use crate::text::{self, Text};

/// Destination of a JSON value that is not null.
pub(crate) enum Slot<'a> {
    /// A string, which is stored.
    Text(&'a mut Text),
    /// True or false.
    Bool(&'a mut bool),
    /// A 32-bit integer.
    I32(&'a mut i32),
    /// A 64-bit integer.
    I64(&'a mut i64),
    /// An object with known fields.
    Object(&'a mut dyn Object),
    /// An array, decoded item by item.
    Array(&'a mut dyn Array),
    /// An object whose keys are data.
    Entries(&'a mut dyn Entries),
    /// A string that is parsed without being stored.
    Parsed(&'a mut dyn FromText),
    /// A string or a number.
    StringOrNumber(&'a mut dyn FromScalar),
    /// A value that is decoded as another type, and then converted.
    Converted(&'a mut dyn Converted),
    /// A value of any type.
    Any(&'a mut dyn FromJson),
    /// A value that is skipped.
    Ignored,
}

/// Field that a JSON value is decoded into. Implemented by every [`Field`].
pub(crate) trait JsonField {
    /// Sets the value of an absent field.
    fn clear(&mut self);
    /// Returns the destination of a value that is not null. What is decoded replaces the field's earlier value.
    fn slot(&mut self) -> Slot<'_>;
    /// Completes the field after its slot was filled.
    fn settle(&mut self);
}

impl<T: Field> JsonField for T {
    fn clear(&mut self) {
        *self = T::absent();
    }

    fn slot(&mut self) -> Slot<'_> {
        Field::slot(self)
    }

    fn settle(&mut self) {
        Field::settle(self);
    }
}

/// Message with named fields.
pub(crate) trait Object {
    /// Returns the field with this JSON name; `None` if the definition lacks it.
    fn field(&mut self, name: &str) -> Option<&mut dyn JsonField>;
}

/// Decoding ended with an error, which the visitor keeps.
#[derive(Debug)]
pub(crate) struct DecodeFailed;

/// Decodes the next item of an array, if there is one.
pub(crate) type NextItem<'f> = dyn FnMut(&mut dyn JsonField) -> Result<bool, DecodeFailed> + 'f;

/// Decodes the key and the value of the next entry of an object, if there is one.
pub(crate) type NextEntry<'f> =
    dyn FnMut(&mut Text, &mut dyn JsonField) -> Result<bool, DecodeFailed> + 'f;

/// List that is decoded item by item.
pub(crate) trait Array {
    /// Replaces the items. `next` decodes the next one; it returns false at the end.
    fn read_items(&mut self, next: &mut NextItem<'_>) -> Result<(), DecodeFailed>;
}

/// Map that is decoded entry by entry.
pub(crate) trait Entries {
    /// Replaces the entries. `next` decodes the next one; it returns false at the end.
    fn read_entries(&mut self, next: &mut NextEntry<'_>) -> Result<(), DecodeFailed>;
}

/// Value that is parsed from a string.
pub(crate) trait FromText {
    /// Parses the string, or returns why it cannot be parsed.
    fn set_text(&mut self, text: &str) -> Result<(), String>;
}

/// Value that JSON represents as a string or a number.
pub(crate) trait FromScalar {
    /// Converts the scalar, or returns why it cannot be converted.
    fn set_scalar(&mut self, scalar: Scalar<'_>) -> Result<(), String>;
}

/// The decoded string or number.
pub(crate) enum Scalar<'a> {
    /// A string; in JSON, without its quotes and escapes.
    Text(&'a str),
    /// An integer that fits `i64`.
    Whole(i64),
    /// Any other number.
    Number(f64),
}

/// Value that is converted from a value of another type.
pub(crate) trait Converted {
    /// Replaces the value. `read` decodes a value of the other type.
    fn convert(
        &mut self,
        read: &mut dyn FnMut(&mut dyn JsonField) -> Result<(), DecodeFailed>,
    ) -> Result<(), DecodeFailed>;
}

/// Type whose JSON is decoded as a `Source`, and then converted.
pub(crate) trait DecodedAs: From<Self::Source> {
    /// Type with the form that the field has in JSON.
    type Source: Field;
}

impl<T: DecodedAs> Converted for T {
    fn convert(
        &mut self,
        read: &mut dyn FnMut(&mut dyn JsonField) -> Result<(), DecodeFailed>,
    ) -> Result<(), DecodeFailed> {
        let mut source = T::Source::absent();
        read(&mut source)?;
        *self = source.into();
        Ok(())
    }
}

/// Value that is converted from any JSON.
pub(crate) trait FromJson {
    /// Replaces the value.
    fn set_json(&mut self, value: &Value);
}

/// Seed that decodes a JSON value into a field; a null clears it.
pub(crate) struct Seed<'a>(pub(crate) &'a mut dyn JsonField);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        self.0.clear();
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.clear();
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        fill(self.0, deserializer)
    }
}

/// Decodes a value that is not null.
fn fill<'de, D: Deserializer<'de>>(
    field: &mut dyn JsonField,
    deserializer: D,
) -> Result<(), D::Error> {
    match field.slot() {
        Slot::Text(text) => *text = deserializer.deserialize_str(text::Visitor)?,
        Slot::Bool(value) => *value = bool::deserialize(deserializer)?,
        Slot::I32(value) => *value = i32::deserialize(deserializer)?,
        Slot::I64(value) => *value = i64::deserialize(deserializer)?,
        Slot::Object(object) => deserializer.deserialize_map(ObjectVisitor(object))?,
        Slot::Array(array) => deserializer.deserialize_seq(ArrayVisitor(array))?,
        Slot::Entries(entries) => deserializer.deserialize_map(EntriesVisitor(entries))?,
        Slot::Parsed(value) => deserializer.deserialize_str(ParsedVisitor(value))?,
        Slot::StringOrNumber(value) => deserializer.deserialize_any(ScalarVisitor(value))?,
        Slot::Converted(value) => fill_converted(value, deserializer)?,
        Slot::Any(value) => value.set_json(&Value::deserialize(deserializer)?),
        Slot::Ignored => drop(deserializer.deserialize_ignored_any(IgnoredAny)?),
    }
    field.settle();
    Ok(())
}

fn fill_converted<'de, D: Deserializer<'de>>(
    value: &mut dyn Converted,
    deserializer: D,
) -> Result<(), D::Error> {
    let (mut unread, mut error) = (Some(deserializer), None);
    let _ = value.convert(&mut |field| {
        let deserializer = unread.take().ok_or(DecodeFailed)?;
        keep(fill(field, deserializer), &mut error)
    });
    error.map_or(Ok(()), Err)
}

/// Moves an error to `kept`, because a function that is called through a `dyn` does not know the error's type.
fn keep<T, E>(result: Result<T, E>, kept: &mut Option<E>) -> Result<T, DecodeFailed> {
    result.map_err(|error| {
        *kept = Some(error);
        DecodeFailed
    })
}

/// Visitor that decodes the known fields of an object.
struct ObjectVisitor<'a>(&'a mut dyn Object);

impl<'de> Visitor<'de> for ObjectVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(FieldName(&mut *self.0))? {
            match field {
                Some(field) => map.next_value_seed(Seed(field))?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Seed that finds a field by its name, without storing the name.
struct FieldName<'a>(&'a mut dyn Object);

impl<'de, 'a> DeserializeSeed<'de> for FieldName<'a> {
    type Value = Option<&'a mut dyn JsonField>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'a> Visitor<'_> for FieldName<'a> {
    type Value = Option<&'a mut dyn JsonField>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.field(name))
    }
}

/// Visitor that decodes an array.
struct ArrayVisitor<'a>(&'a mut dyn Array);

impl<'de> Visitor<'de> for ArrayVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut error = None;
        let _ = self.0.read_items(&mut |item| {
            keep(seq.next_element_seed(Seed(item)), &mut error).map(|item| item.is_some())
        });
        error.map_or(Ok(()), Err)
    }
}

/// Visitor that decodes the entries of an object whose keys are data.
struct EntriesVisitor<'a>(&'a mut dyn Entries);

impl<'de> Visitor<'de> for EntriesVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut error = None;
        let _ = self
            .0
            .read_entries(&mut |key, value| keep(next_entry(&mut map, key, value), &mut error));
        error.map_or(Ok(()), Err)
    }
}

/// Decodes the next entry of a map; returns false after the last one.
fn next_entry<'de, A: MapAccess<'de>>(
    map: &mut A,
    key: &mut Text,
    value: &mut dyn JsonField,
) -> Result<bool, A::Error> {
    let Some(next) = map.next_key::<Text>()? else { return Ok(false) };
    *key = next;
    map.next_value_seed(Seed(value))?;
    Ok(true)
}

/// Visitor that parses a value from a string.
struct ParsedVisitor<'a>(&'a mut dyn FromText);

impl Visitor<'_> for ParsedVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.0.set_text(text).map_err(E::custom)
    }
}

/// Visitor that converts a string or a number.
struct ScalarVisitor<'a>(&'a mut dyn FromScalar);

impl Visitor<'_> for ScalarVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a number")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.0.set_scalar(Scalar::Text(text)).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        self.0.set_scalar(Scalar::Whole(number)).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        let scalar = i64::try_from(number).map_or(Scalar::Number(number as f64), Scalar::Whole);
        self.0.set_scalar(scalar).map_err(E::custom)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        self.0.set_scalar(Scalar::Number(number)).map_err(E::custom)
    }
}
