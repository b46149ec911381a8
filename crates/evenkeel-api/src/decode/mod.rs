//! Decoding of objects: one struct definition yields a JSON decoder and a Kubernetes protobuf decoder.
//!
//! `message!` turns a table of fields into both decoders. Both skip fields that the definition does not name,
//! without storing them. An error contains the path of its field, and no input causes a panic.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

mod json;
mod macros;
mod path;
pub(crate) mod proto;
#[cfg(test)]
mod tests;
mod types;

pub(crate) use json::{
    Array, DecodeFailed, DecodedAs, Entries, FromJson, FromScalar, FromText, JsonField, NextEntry,
    NextItem, Object, Scalar, Seed, Slot,
};
pub(crate) use macros::{message, view};
pub(crate) use proto::{Reader, Wire, WireError};

use serde::de::DeserializeSeed;

use crate::{DecodeError, Encoding};

/// Type of a field in upstream's protobuf definitions. A test compares the types of all fields with upstream's
/// recorded definitions.
#[derive(Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests compare definitions with upstream"))]
pub(crate) enum Shape {
    /// Name of a protobuf scalar, or of a message that is decoded as a single value.
    Named(&'static str),
    /// A message with its own definition.
    Message(&'static Definition),
    /// A list of values of one type.
    Repeated(&'static Shape),
    /// A map with string keys.
    Map(&'static Shape),
}

/// Name and fields of a message, from its definition.
#[derive(Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests compare definitions with upstream"))]
pub(crate) struct Definition {
    /// Qualified name, such as `k8s.io.api.core.v1.Pod`.
    pub(crate) name: &'static str,
    /// Number, JSON name and type of each decoded field. The name of a field that JSON inlines is empty.
    pub(crate) fields: &'static [(u32, &'static str, &'static Shape)],
}

/// Type of a field, with its decoders for both encodings.
pub(crate) trait Field: Sized {
    /// Type in upstream's protobuf definitions.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "only tests compare definitions with upstream")
    )]
    const SHAPE: Shape;
    /// Decoding state that collects the occurrences of the protobuf field: a field may occur several times.
    type Partial;

    /// Returns the value of a field that is absent or null.
    fn absent() -> Self;
    /// Returns whether the value counts as absent. If so, an optional field is `None`.
    fn is_absent(&self) -> bool {
        false
    }
    /// Returns the destination of a JSON value that is not null. What is decoded replaces the value.
    fn slot(&mut self) -> Slot<'_>;
    /// Completes the value after its slot was filled.
    fn settle(&mut self) {}
    /// Converts the value of an earlier part of the message to a state that later parts are merged into.
    fn into_partial(self) -> Self::Partial;
    /// Merges one occurrence of the field: appends to lists and maps, merges messages, replaces scalars.
    fn merge(
        partial: &mut Self::Partial,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError>;
    /// Converts the state to the value, at the end of the message.
    fn finish(partial: Self::Partial) -> Result<Self, WireError>;
}

/// A struct defined by `message!`.
pub(crate) trait Message: Object + Default {
    /// Names, numbers and shapes of the message's fields.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "only tests compare definitions with upstream")
    )]
    const DEFINITION: Definition;

    /// Decodes and merges the message's fields up to the reader's end.
    fn merge_fields(&mut self, reader: &mut Reader<'_>) -> Result<(), WireError>;
}

/// Decodes a standalone message.
pub(crate) fn decode_message<T: Field>(
    kind: &str,
    bytes: &[u8],
    encoding: Encoding,
) -> Result<T, DecodeError> {
    match encoding {
        Encoding::Json => {
            let mut value = T::absent();
            read_json(&mut value, kind, bytes)?;
            Ok(value)
        }
        Encoding::Protobuf => {
            let mut partial = T::absent().into_partial();
            let mut reader = Reader::new(bytes);
            T::merge(&mut partial, Wire::Message, &mut reader)
                .and_then(|()| T::finish(partial))
                .map_err(|error| error.into_decode_error(kind))
        }
    }
}

/// Decodes JSON. If that fails, decodes again without `serde_json`'s own limit on nesting, and determines the path of
/// the error. Most valid input is decoded only once.
fn read_json(field: &mut dyn JsonField, kind: &str, bytes: &[u8]) -> Result<(), DecodeError> {
    // Here `serde_json`'s own limit applies, so the depth of the JSON need not be measured first.
    if read_all(field, serde_json::Deserializer::from_slice(bytes)).is_ok() {
        return Ok(());
    }
    field.clear();
    let read =
        crate::json::deserializer(bytes).and_then(|deserializer| read_all(field, deserializer));
    read.map_err(|error| DecodeError {
        kind: kind.into(),
        field: path::field_at(bytes, error.line(), error.column()).into(),
        reason: error.to_string().into(),
    })
}

/// Decodes one value, and rejects any input after it.
fn read_all(
    field: &mut dyn JsonField,
    mut deserializer: serde_json::Deserializer<serde_json::de::SliceRead<'_>>,
) -> Result<(), serde_json::Error> {
    Seed(field).deserialize(&mut deserializer)?;
    deserializer.end()
}
