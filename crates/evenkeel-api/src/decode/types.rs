//! Decoders of the field types in `message!` definitions.

use std::marker::PhantomData;

use serde::de::{Deserializer, IgnoredAny, Visitor};

use super::json::{Array, Entries, Parsed};
use super::{Field, Reader, Shape, Wire, WireError};
use crate::map::{Map, RawJson, Unread, sort_and_dedup};
use crate::meta::StrMap;
use crate::shared::{Recalled, Shared, recall};
use crate::text::{self, Text};
use crate::time::{self, Timestamp};

impl Field for Text {
    const SHAPE: Shape = Shape::Named("string");
    type Partial = Self;

    fn absent() -> Self {
        Self::default()
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(text::Visitor)
    }

    fn into_partial(self) -> Self {
        self
    }

    fn merge(partial: &mut Self, wire: Wire, reader: &mut Reader<'_>) -> Result<(), WireError> {
        let bytes = reader.expect_bytes(wire)?;
        // Upstream does not validate UTF-8. Invalid characters are replaced, as in upstream's JSON of the object.
        *partial = match std::str::from_utf8(bytes) {
            Ok(text) => Text::recalled(text),
            Err(_) => Text::recalled(&String::from_utf8_lossy(bytes)),
        };
        Ok(())
    }

    fn finish(partial: Self) -> Result<Self, WireError> {
        Ok(partial)
    }
}

/// Implements [`Field`] for a type that protobuf encodes as a varint.
macro_rules! scalar {
    ($type:ty, $shape:literal, $absent:expr, |$number:ident| $convert:expr) => {
        impl Field for $type {
            const SHAPE: Shape = Shape::Named($shape);
            type Partial = Self;

            fn absent() -> Self {
                $absent
            }

            fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }

            fn into_partial(self) -> Self {
                self
            }

            fn merge(
                partial: &mut Self,
                wire: Wire,
                reader: &mut Reader<'_>,
            ) -> Result<(), WireError> {
                let $number = reader.expect_varint(wire)?;
                *partial = $convert;
                Ok(())
            }

            fn finish(partial: Self) -> Result<Self, WireError> {
                Ok(partial)
            }
        }
    };
}

// Protobuf extends the sign of a negative number to 64 bits, so the conversions only drop bits.
scalar!(bool, "bool", false, |number| number != 0);
scalar!(i32, "int32", 0, |number| number as i32);
scalar!(i64, "int64", 0, |number| number as i64);

impl<T: Field> Field for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    type Partial = Option<T::Partial>;

    fn absent() -> Self {
        None
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::from_json(deserializer).map(|value| Some(value).filter(|value| !value.is_absent()))
    }

    fn into_partial(self) -> Self::Partial {
        self.map(T::into_partial)
    }

    fn merge(
        partial: &mut Self::Partial,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        T::merge(partial.get_or_insert_with(|| T::absent().into_partial()), wire, reader)
    }

    fn finish(partial: Self::Partial) -> Result<Self, WireError> {
        Ok(partial.map(T::finish).transpose()?.filter(|value| !value.is_absent()))
    }
}

impl<T: Field> Field for Box<T> {
    const SHAPE: Shape = T::SHAPE;
    type Partial = Box<T::Partial>;

    fn absent() -> Self {
        Self::new(T::absent())
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::from_json(deserializer).map(Self::new)
    }

    fn into_partial(self) -> Self::Partial {
        Box::new((*self).into_partial())
    }

    fn merge(
        partial: &mut Self::Partial,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        T::merge(partial, wire, reader)
    }

    fn finish(partial: Self::Partial) -> Result<Self, WireError> {
        T::finish(*partial).map(Self::new)
    }
}

impl<T: Field> Field for Box<[T]> {
    const SHAPE: Shape = Shape::Repeated(&T::SHAPE);
    type Partial = Vec<T>;

    fn absent() -> Self {
        Self::default()
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Array::<T>(PhantomData)).map(Vec::into_boxed_slice)
    }

    fn into_partial(self) -> Vec<T> {
        self.into_vec()
    }

    fn merge(partial: &mut Vec<T>, wire: Wire, reader: &mut Reader<'_>) -> Result<(), WireError> {
        let mut item_partial = T::absent().into_partial();
        let item = T::merge(&mut item_partial, wire, reader).and_then(|()| T::finish(item_partial));
        partial.push(item.map_err(|error| error.at_index(partial.len()))?);
        Ok(())
    }

    fn finish(partial: Vec<T>) -> Result<Self, WireError> {
        Ok(partial.into_boxed_slice())
    }
}

impl<T: Field + Recalled + Clone> Field for Shared<T> {
    const SHAPE: Shape = <Box<[T]>>::SHAPE;
    type Partial = Vec<T>;

    fn absent() -> Self {
        Self::default()
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Array::<T>(PhantomData)).map(recall)
    }

    fn into_partial(self) -> Vec<T> {
        self.to_vec()
    }

    fn merge(partial: &mut Vec<T>, wire: Wire, reader: &mut Reader<'_>) -> Result<(), WireError> {
        <Box<[T]>>::merge(partial, wire, reader)
    }

    fn finish(partial: Vec<T>) -> Result<Self, WireError> {
        Ok(recall(partial))
    }
}

impl<T: Field> Field for Map<T> {
    const SHAPE: Shape = Shape::Map(&T::SHAPE);
    type Partial = Vec<(Text, T)>;

    fn absent() -> Self {
        Self::default()
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries::<T>(PhantomData)).map(Self::from_entries)
    }

    fn into_partial(self) -> Self::Partial {
        self.into_entries()
    }

    fn merge(
        partial: &mut Self::Partial,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        // An entry is a message whose field 1 is the key and field 2 the value.
        let mut entry = Reader::new(reader.expect_bytes(wire)?);
        let (mut key, mut value) = (Text::new(), T::absent().into_partial());
        while let Some((number, wire)) = entry.tag()? {
            match number {
                1 => Text::merge(&mut key, wire, &mut entry)?,
                2 => T::merge(&mut value, wire, &mut entry)?,
                _ => entry.skip(number, wire)?,
            }
        }
        partial.push((key, T::finish(value)?));
        Ok(())
    }

    fn finish(partial: Self::Partial) -> Result<Self, WireError> {
        Ok(Self::from_entries(partial))
    }
}

impl Field for StrMap {
    const SHAPE: Shape = Shape::Map(&Shape::Named("string"));
    type Partial = Vec<(Text, Text)>;

    fn absent() -> Self {
        Self::default()
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(Entries::<Text>(PhantomData))
            .map(|entries| Self(recall(sort_and_dedup(entries))))
    }

    fn into_partial(self) -> Self::Partial {
        self.0.to_vec()
    }

    fn merge(
        partial: &mut Self::Partial,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        Map::<Text>::merge(partial, wire, reader)
    }

    fn finish(partial: Self::Partial) -> Result<Self, WireError> {
        Ok(Self(recall(sort_and_dedup(partial))))
    }
}

impl Field for Unread {
    const SHAPE: Shape = Shape::Named("any");
    type Partial = ();

    fn absent() -> Self {
        Self
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_ignored_any(IgnoredAny)?;
        Ok(Self)
    }

    fn into_partial(self) {}

    fn merge((): &mut (), wire: Wire, reader: &mut Reader<'_>) -> Result<(), WireError> {
        // The number only matters for groups, which Kubernetes does not use.
        reader.skip(1, wire)
    }

    fn finish((): ()) -> Result<Self, WireError> {
        Ok(Self)
    }
}

impl Field for RawJson {
    // `runtime.RawExtension`: in protobuf, its first field contains the JSON.
    const SHAPE: Shape = Shape::Named("any");
    type Partial = Self;

    fn absent() -> Self {
        Self::default()
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = <serde_json::Value as serde::Deserialize>::deserialize(deserializer)?;
        Ok(Self(value.to_string().into()))
    }

    fn into_partial(self) -> Self {
        self
    }

    fn merge(partial: &mut Self, wire: Wire, reader: &mut Reader<'_>) -> Result<(), WireError> {
        let mut body = Reader::new(reader.expect_bytes(wire)?);
        while let Some((number, wire)) = body.tag()? {
            match number {
                1 => {
                    let value: serde_json::Value =
                        crate::json::from_slice(body.expect_bytes(wire)?)
                            .map_err(|error| WireError::new(error.to_string()))?;
                    // Format the JSON as `from_json` does, so that both encodings yield the same text.
                    *partial = Self(value.to_string().into());
                }
                _ => body.skip(number, wire)?,
            }
        }
        Ok(())
    }

    fn finish(partial: Self) -> Result<Self, WireError> {
        Ok(partial)
    }
}

/// Fields of a time that have been decoded from protobuf.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TimeFields {
    /// Whether the message has any field. A message without fields is Go's zero time.
    is_present: bool,
    seconds: i64,
    nanos: i32,
}

impl Field for Timestamp {
    // `metav1.Time` and `metav1.MicroTime` have the same layout.
    const SHAPE: Shape = Shape::Named("time");
    type Partial = TimeFields;

    /// Returns Go's zero time, which stands for an absent time. `Option` converts it to `None`.
    fn absent() -> Self {
        time::ZERO
    }

    fn is_absent(&self) -> bool {
        *self == time::ZERO
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed(time::parse, PhantomData))
    }

    fn into_partial(self) -> TimeFields {
        if self.is_absent() {
            return TimeFields::default();
        }
        TimeFields { is_present: true, seconds: self.as_second(), nanos: self.subsec_nanosecond() }
    }

    fn merge(
        partial: &mut TimeFields,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let mut body = Reader::new(reader.expect_bytes(wire)?);
        while let Some((number, wire)) = body.tag()? {
            partial.is_present = true;
            match number {
                1 => i64::merge(&mut partial.seconds, wire, &mut body)?,
                2 => i32::merge(&mut partial.nanos, wire, &mut body)?,
                _ => body.skip(number, wire)?,
            }
        }
        Ok(())
    }

    fn finish(partial: TimeFields) -> Result<Self, WireError> {
        if !partial.is_present {
            return Ok(time::ZERO);
        }
        Timestamp::new(partial.seconds, partial.nanos)
            .map_err(|_| WireError::new(format!("{} seconds is no time", partial.seconds)))
    }
}

/// Visitor for a value that JSON represents as a string or a number.
pub(crate) struct StringOrNumber<T>(pub(crate) fn(Scalar<'_>) -> Result<T, String>);

/// The decoded string or number.
pub(crate) enum Scalar<'a> {
    /// A string; in JSON, without its quotes and escapes.
    Text(&'a str),
    /// An integer that fits `i64`.
    Whole(i64),
    /// Any other number.
    Number(f64),
}

impl<T> Visitor<'_> for StringOrNumber<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string or a number")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(Scalar::Text(text)).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        (self.0)(Scalar::Whole(number)).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        let scalar = i64::try_from(number).map_or(Scalar::Number(number as f64), Scalar::Whole);
        (self.0)(scalar).map_err(E::custom)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
        (self.0)(Scalar::Number(number)).map_err(E::custom)
    }
}
