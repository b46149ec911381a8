//! Decoding of lists, item by item.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::decode::{Field, Reader, Seed, WireError, message};
use crate::text::Text;
use crate::{DecodeError, Encoding, View};

message! {
    /// `metadata` of a list.
    pub struct ListMeta("k8s.io.apimachinery.pkg.apis.meta.v1.ListMeta") {
        /// resourceVersion of the list.
        resource_version: Text = 2 "resourceVersion",
        /// Continue token for the next page; empty on the last.
        continue_: Text = 3 "continue",
        /// Number of items on the following pages, if the server knows it.
        remaining_item_count: Option<i64> = 4 "remainingItemCount",
    }
}

/// Items of a collection, or of one page of it.
#[derive(Debug, Clone)]
pub struct List<V> {
    /// Decoded objects in the server's order.
    pub items: Vec<V>,
    /// resourceVersion of the collection.
    pub resource_version: Text,
    /// Continue token for the next page; empty on the last.
    pub continue_: Text,
    /// Errors of the objects that could not be decoded. `items` lacks these objects.
    pub skipped: Vec<DecodeError>,
}

impl<V: View> List<V> {
    /// Decodes a list with [`items`]. Reports items that cannot be decoded separately, with their names if the names
    /// can be decoded.
    ///
    /// # Errors
    /// Fails if the bytes are not a list.
    pub fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError> {
        let (mut objects, mut skipped) = (Vec::new(), Vec::new());
        let mut decode_item = |item| match V::decode(item, encoding) {
            Ok(object) => objects.push(object),
            Err(error) => skipped.push(error.naming(item, encoding)),
        };
        let meta = items(bytes, encoding, &mut decode_item)?;
        Ok(Self {
            items: objects,
            resource_version: meta.resource_version,
            continue_: meta.continue_,
            skipped,
        })
    }
}

/// Calls `each` with the bytes of every item of a list, in order, and returns the list's metadata. `each` can skip an
/// item that it cannot decode. Protobuf bytes are the list's message without an envelope.
///
/// # Errors
/// Fails if the bytes are not a list.
pub fn items<'a>(
    bytes: &'a [u8],
    encoding: Encoding,
    each: &mut dyn FnMut(&'a [u8]),
) -> Result<ListMeta, DecodeError> {
    match encoding {
        Encoding::Json => {
            let mut deserializer = serde_json::Deserializer::from_slice(bytes);
            let list = deserializer.deserialize_map(JsonList { each });
            let meta = list.and_then(|meta| deserializer.end().map(|()| meta));
            meta.map_err(|error| DecodeError {
                kind: "List".into(),
                field: ".".into(),
                reason: error.to_string().into(),
            })
        }
        Encoding::Protobuf => {
            proto_items(bytes, each).map_err(|error| error.into_decode_error("List"))
        }
    }
}

fn proto_items<'a>(bytes: &'a [u8], each: &mut dyn FnMut(&'a [u8])) -> Result<ListMeta, WireError> {
    let mut reader = Reader::new(bytes);
    let mut meta = ListMeta::default();
    while let Some((number, wire)) = reader.tag()? {
        match number {
            1 => ListMeta::merge(&mut meta, wire, &mut reader)
                .map_err(|error| error.at_field("metadata"))?,
            2 => each(reader.expect_bytes(wire).map_err(|error| error.at_field("items"))?),
            _ => reader.skip(number, wire)?,
        }
    }
    Ok(meta)
}

/// Visitor of a list in JSON.
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
                "metadata" => map.next_value_seed(Seed(&mut meta))?,
                "items" => map.next_value_seed(JsonItems { each: &mut *self.each })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(meta)
    }
}

/// Visitor of the field `items` of a list in JSON.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::Transcoder;
    use crate::views::Metadata;
    use serde_json::json;

    #[test]
    fn invalid_items_are_skipped() {
        let body = br#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},{"metadata":7}]}"#;
        let list = List::<Metadata>::decode(body, Encoding::Json).unwrap();
        assert_eq!(&*list.resource_version, "9");
        assert_eq!(list.items.len(), 1);
        assert_eq!(list.skipped.len(), 1);
    }

    #[test]
    fn null_items_are_an_empty_list() {
        let body = br#"{"metadata":{},"items":null}"#;
        assert!(List::<Metadata>::decode(body, Encoding::Json).unwrap().items.is_empty());
    }

    #[test]
    fn skipped_items_are_named() {
        let body = br#"{"items":[{"metadata":{"name":"a","namespace":"ns"},"spec":7}]}"#;
        let list = List::<crate::views::Pod>::decode(body, Encoding::Json).unwrap();
        assert_eq!((&*list.skipped[0].kind, &*list.skipped[0].field), ("Pod ns/a", "spec"));
    }

    #[test]
    fn protobuf_list_is_decoded() {
        let list = json!({
            "apiVersion": "v1", "kind": "PodList", "metadata": { "resourceVersion": "17", "continue": "more" },
            "items": [{ "metadata": { "name": "a" } }, { "metadata": { "name": "b" } }],
        });
        let bytes = Transcoder::encode("v1", "PodList", &list).unwrap();
        let list = List::<Metadata>::decode(&bytes, Encoding::Protobuf).unwrap();
        assert_eq!((&*list.resource_version, &*list.continue_), ("17", "more"));
        assert_eq!(list.items.iter().map(|item| &*item.meta.name).collect::<Vec<_>>(), ["a", "b"]);
        assert!(List::<Metadata>::decode(b"\x12\x7fx", Encoding::Protobuf).is_err());
    }
}
