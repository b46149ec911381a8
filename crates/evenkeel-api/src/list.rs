//! Lists, taken apart without building them.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::decode::{Field, Reader, Seed, WireError, message};
use crate::{DecodeError, Encoding};

message! {
    /// What a list says of itself.
    pub struct ListMeta("k8s.io.apimachinery.pkg.apis.meta.v1.ListMeta") {
        /// The version at which it was true.
        resource_version: Box<str> = 2 "resourceVersion",
        /// Where the next page begins; empty on the last.
        continue_: Box<str> = 3 "continue",
        /// How many items the following pages have, where the server knows.
        remaining_item_count: Option<i64> = 4 "remainingItemCount",
    }
}

/// Calls `each` with the bytes of every item of a list, in order, and returns what the list says of itself. What an item
/// is worth is for the caller to say: one that cannot be decoded need not stop the others. Protobuf bytes are those of
/// the list's message, without an envelope.
///
/// # Errors
/// When the bytes are no list.
pub fn items<'a>(
    bytes: &'a [u8],
    encoding: Encoding,
    each: &mut dyn FnMut(&'a [u8]),
) -> Result<ListMeta, DecodeError> {
    match encoding {
        Encoding::Json => {
            let mut deserializer = serde_json::Deserializer::from_slice(bytes);
            let read = deserializer.deserialize_map(JsonList { each });
            read.and_then(|meta| deserializer.end().map(|()| meta)).map_err(|error| DecodeError {
                kind: "List".into(),
                field: ".".into(),
                reason: error.to_string().into(),
            })
        }
        Encoding::Protobuf => proto_items(bytes, each).map_err(|error| error.of("List")),
    }
}

fn proto_items<'a>(bytes: &'a [u8], each: &mut dyn FnMut(&'a [u8])) -> Result<ListMeta, WireError> {
    let mut reader = Reader::new(bytes);
    let mut meta = ListMeta::default();
    while let Some((number, wire)) = reader.tag()? {
        match number {
            1 => ListMeta::merge(&mut meta, wire, &mut reader)
                .map_err(|error| error.field("metadata"))?,
            2 => each(reader.expect_bytes(wire).map_err(|error| error.field("items"))?),
            _ => reader.skip(number, wire)?,
        }
    }
    Ok(meta)
}

struct JsonList<'f, 'a> {
    each: &'f mut dyn FnMut(&'a [u8]),
}

impl<'a> Visitor<'a> for JsonList<'_, 'a> {
    type Value = ListMeta;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<ListMeta, A::Error> {
        let mut meta = ListMeta::default();
        while let Some(key) = map.next_key::<Cow<'a, str>>()? {
            match &*key {
                "metadata" => meta = map.next_value_seed(Seed::NEW)?,
                "items" => map.next_value_seed(JsonItems { each: &mut *self.each })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(meta)
    }
}

struct JsonItems<'f, 'a> {
    each: &'f mut dyn FnMut(&'a [u8]),
}

impl<'a> DeserializeSeed<'a> for JsonItems<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for JsonItems<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array or null")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(item) = seq.next_element::<&'a RawValue>()? {
            (self.each)(item.get().as_bytes());
        }
        Ok(())
    }
}
