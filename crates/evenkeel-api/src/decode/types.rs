//! Decoders of the field types in `message!` definitions.

use super::{
    Array, DecodeFailed, Entries, Field, FromJson, FromText, NextEntry, NextItem, Reader, Shape,
    Slot, Wire, WireError,
};
use crate::map::{Map, RawJson, Unread, sort_and_dedup};
use crate::meta::StrMap;
use crate::shared::{Interned, Shared, intern};
use crate::text::Text;
use crate::time::{self, Timestamp};

impl Field for Text {
    const SHAPE: Shape = Shape::Named("string");
    type Partial = Self;

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Text(self)
    }

    fn into_partial(self) -> Self {
        self
    }

    fn merge(partial: &mut Self, wire: Wire, reader: &mut Reader<'_>) -> Result<(), WireError> {
        let bytes = reader.expect_bytes(wire)?;
        // Upstream does not validate UTF-8. Invalid characters are replaced, as in upstream's JSON of the object.
        *partial = match std::str::from_utf8(bytes) {
            Ok(text) => Text::interned(text),
            Err(_) => Text::interned(&String::from_utf8_lossy(bytes)),
        };
        Ok(())
    }

    fn finish(partial: Self) -> Result<Self, WireError> {
        Ok(partial)
    }
}

/// Implements [`Field`] for a type that protobuf encodes as a varint.
macro_rules! scalar {
    ($type:ty, $slot:ident, $shape:literal, $absent:expr, |$number:ident| $convert:expr) => {
        impl Field for $type {
            const SHAPE: Shape = Shape::Named($shape);
            type Partial = Self;

            fn absent() -> Self {
                $absent
            }

            fn slot(&mut self) -> Slot<'_> {
                Slot::$slot(self)
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
scalar!(bool, Bool, "bool", false, |number| number != 0);
scalar!(i32, I32, "int32", 0, |number| number as i32);
scalar!(i64, I64, "int64", 0, |number| number as i64);

impl<T: Field> Field for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    type Partial = Option<T::Partial>;

    fn absent() -> Self {
        None
    }

    fn slot(&mut self) -> Slot<'_> {
        Field::slot(self.insert(T::absent()))
    }

    fn settle(&mut self) {
        if let Some(value) = self {
            Field::settle(value);
            if value.is_absent() {
                *self = None;
            }
        }
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

    fn slot(&mut self) -> Slot<'_> {
        Field::slot(&mut **self)
    }

    fn settle(&mut self) {
        Field::settle(&mut **self);
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

/// Decodes the items of an array.
fn items<T: Field>(next: &mut NextItem<'_>) -> Result<Vec<T>, DecodeFailed> {
    let mut items = Vec::new();
    loop {
        let mut item = T::absent();
        if !next(&mut item)? {
            return Ok(items);
        }
        items.push(item);
    }
}

/// Decodes the entries of an object whose keys are data.
fn entries<T: Field>(next: &mut NextEntry<'_>) -> Result<Vec<(Text, T)>, DecodeFailed> {
    let mut entries = Vec::new();
    loop {
        let (mut key, mut value) = (Text::new(), T::absent());
        if !next(&mut key, &mut value)? {
            return Ok(entries);
        }
        entries.push((key, value));
    }
}

impl<T: Field> Array for Box<[T]> {
    fn read_items(&mut self, next: &mut NextItem<'_>) -> Result<(), DecodeFailed> {
        *self = items(next)?.into_boxed_slice();
        Ok(())
    }
}

impl<T: Field> Field for Box<[T]> {
    const SHAPE: Shape = Shape::Repeated(&T::SHAPE);
    type Partial = Vec<T>;

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Array(self)
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

impl<T: Field + Interned> Array for Shared<T> {
    fn read_items(&mut self, next: &mut NextItem<'_>) -> Result<(), DecodeFailed> {
        *self = intern(items(next)?);
        Ok(())
    }
}

impl<T: Field + Interned + Clone> Field for Shared<T> {
    const SHAPE: Shape = <Box<[T]>>::SHAPE;
    type Partial = Vec<T>;

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Array(self)
    }

    fn into_partial(self) -> Vec<T> {
        self.to_vec()
    }

    fn merge(partial: &mut Vec<T>, wire: Wire, reader: &mut Reader<'_>) -> Result<(), WireError> {
        <Box<[T]>>::merge(partial, wire, reader)
    }

    fn finish(partial: Vec<T>) -> Result<Self, WireError> {
        Ok(intern(partial))
    }
}

impl<T: Field> Entries for Map<T> {
    fn read_entries(&mut self, next: &mut NextEntry<'_>) -> Result<(), DecodeFailed> {
        *self = Self::from_entries(entries(next)?);
        Ok(())
    }
}

impl<T: Field> Field for Map<T> {
    const SHAPE: Shape = Shape::Map(&T::SHAPE);
    type Partial = Vec<(Text, T)>;

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Entries(self)
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

impl Entries for StrMap {
    fn read_entries(&mut self, next: &mut NextEntry<'_>) -> Result<(), DecodeFailed> {
        *self = Self(intern(sort_and_dedup(entries(next)?)));
        Ok(())
    }
}

impl Field for StrMap {
    const SHAPE: Shape = Shape::Map(&Shape::Named("string"));
    type Partial = Vec<(Text, Text)>;

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Entries(self)
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
        Ok(Self(intern(sort_and_dedup(partial))))
    }
}

impl Field for Unread {
    const SHAPE: Shape = Shape::Named("any");
    type Partial = ();

    fn absent() -> Self {
        Self
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Ignored
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

impl FromJson for RawJson {
    fn set_json(&mut self, value: &serde_json::Value) {
        *self = Self(value.to_string().into());
    }
}

impl Field for RawJson {
    // `runtime.RawExtension`: in protobuf, its first field contains the JSON.
    const SHAPE: Shape = Shape::Named("any");
    type Partial = Self;

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Any(self)
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
                    // Format the JSON as `set_json` does, so that both encodings yield the same string.
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

impl FromText for Timestamp {
    fn set_text(&mut self, text: &str) -> Result<(), String> {
        *self = time::parse(text).map_err(|error| error.to_string())?;
        Ok(())
    }
}

impl Field for Timestamp {
    // `metav1.Time` and `metav1.MicroTime` have the same layout.
    const SHAPE: Shape = Shape::Named("time");
    type Partial = TimeFields;

    /// Returns Go's zero time, which represents an absent time. `Option` converts it to `None`.
    fn absent() -> Self {
        time::ZERO
    }

    fn is_absent(&self) -> bool {
        *self == time::ZERO
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Parsed(self)
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
            .map_err(|_| WireError::new(format!("invalid time: {} seconds", partial.seconds)))
    }
}
