//! Reading objects from the wire: one struct definition yields a JSON decoder and a Kubernetes protobuf decoder.
//!
//! `message!` turns a table of fields into both decoders. Either way, what the definition does not name is skipped
//! without being stored, an error names the path of its field, and nothing that came from outside makes it panic.

#![deny(clippy::indexing_slicing)]

mod json;
mod macros;
mod path;
pub(crate) mod proto;
#[cfg(test)]
mod tests;
mod types;

pub(crate) use json::{Object, Seed};
pub(crate) use macros::{message, view};
pub(crate) use proto::{Reader, Wire, WireError};
pub(crate) use types::{Scalar, StringOrNumber};

use serde::de::{DeserializeSeed, Deserializer, MapAccess};

use crate::{DecodeError, Encoding};

/// What a type is in upstream's protobuf definitions; held against the recorded facts by a test.
#[derive(Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "definitions are held against the facts by tests"))]
pub(crate) enum Shape {
    /// A protobuf scalar, or a message that is read as one value, by its name.
    Named(&'static str),
    /// A message with a definition of its own.
    Message(&'static Facts),
    /// A list of values of one shape.
    Repeated(&'static Shape),
    /// A map from strings.
    Map(&'static Shape),
}

/// A message as its definition states it.
#[derive(Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "definitions are held against the facts by tests"))]
pub(crate) struct Facts {
    /// Package and name, such as `k8s.io.api.core.v1.Pod`.
    pub(crate) name: &'static str,
    /// Number, JSON name and type of each field that is read; the name is empty for a field inlined in JSON.
    pub(crate) fields: &'static [(u32, &'static str, &'static Shape)],
}

/// A field's type, with its decoding from both encodings.
pub(crate) trait Field: Sized {
    /// Upstream's name of the message.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "definitions are held against the facts by tests")
    )]
    const SHAPE: Shape;
    /// What protobuf occurrences of the field are gathered in.
    type Partial;

    /// Returns the value of a field that is absent or null.
    fn absent() -> Self;
    /// Whether it stands for no value, which makes an optional field `None`.
    fn is_absent(&self) -> bool {
        false
    }
    /// Decodes a JSON value that is not null.
    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
    /// Goes on gathering where an earlier part of the message left off.
    fn open(self) -> Self::Partial;
    /// Adds one occurrence of the field: lists and maps grow, messages merge, scalars are replaced.
    fn merge(
        partial: &mut Self::Partial,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError>;
    /// The value, when the message has ended.
    fn close(partial: Self::Partial) -> Result<Self, WireError>;
}

/// A struct made by `message!`.
pub(crate) trait Message: Sized + Default {
    /// Names, numbers and shapes of the message's fields.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "definitions are held against the facts by tests")
    )]
    const FACTS: Facts;

    /// Identifies a JSON name among the fields; 0 is none of them.
    fn key(name: &str) -> u64;
    /// Reads the JSON value of the field that `key` identified.
    fn json_field<'de, A: MapAccess<'de>>(&mut self, key: u64, map: &mut A)
    -> Result<(), A::Error>;
    /// Reads the message's fields up to the reader's end.
    fn merge_fields(&mut self, reader: &mut Reader<'_>) -> Result<(), WireError>;
}

/// Decodes a message that stands alone.
pub(crate) fn decode_message<T: Field>(
    kind: &str,
    bytes: &[u8],
    encoding: Encoding,
) -> Result<T, DecodeError> {
    match encoding {
        Encoding::Json => from_json(kind, bytes),
        Encoding::Protobuf => {
            let mut partial = T::absent().open();
            let mut reader = Reader::new(bytes);
            T::merge(&mut partial, Wire::Message, &mut reader)
                .and_then(|()| T::close(partial))
                .map_err(|error| error.of(kind))
        }
    }
}

/// Decodes JSON; when that fails, decodes again without the bound on nesting that `serde_json` has, and looks for the path of
/// the error, which good input need not pay for.
fn from_json<T: Field>(kind: &str, bytes: &[u8]) -> Result<T, DecodeError> {
    // Within serde_json's own bound on nesting, text need not be measured first.
    if let Ok(value) = read_all(serde_json::Deserializer::from_slice(bytes)) {
        return Ok(value);
    }
    crate::json::deserializer(bytes).and_then(read_all).map_err(|error| DecodeError {
        kind: kind.into(),
        field: path::field_at(bytes, error.line(), error.column()).into(),
        reason: error.to_string().into(),
    })
}

/// Reads one value, and nothing after it.
fn read_all<'de, T: Field>(
    mut deserializer: serde_json::Deserializer<serde_json::de::SliceRead<'de>>,
) -> Result<T, serde_json::Error> {
    let value = Seed::<T>::NEW.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}
