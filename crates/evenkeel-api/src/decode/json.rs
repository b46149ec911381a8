//! JSON decoding: nulls count as absent, and unknown fields are skipped.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Field, Message};
use crate::text::Text;

/// Deserializer of a `T`. A JSON null yields [`Field::absent`].
pub(crate) struct Seed<T>(PhantomData<T>);

impl<T> Seed<T> {
    /// The only value of this type.
    pub(crate) const NEW: Self = Self(PhantomData);
}

impl<'de, T: Field> DeserializeSeed<'de> for Seed<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Field> Visitor<'de> for Seed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E>(self) -> Result<T, E> {
        Ok(T::absent())
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::absent())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::from_json(deserializer)
    }
}

/// Visitor that decodes an object into a message.
pub(crate) struct Object<T>(pub(crate) PhantomData<T>);

impl<'de, T: Message> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    // Not inlined: otherwise a kind's decoder would be one huge function, which takes minutes to optimize.
    #[inline(never)]
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut value = T::default();
        while let Some(key) = map.next_key_seed(Key::<T>(PhantomData))? {
            let is_unknown_field = key == 0;
            if is_unknown_field {
                map.next_value::<IgnoredAny>()?;
            } else {
                value.decode_json_field(key, &mut map)?;
            }
        }
        Ok(value)
    }
}

/// Deserializer that maps a field's name to its key ([`Message::field_key`]) without storing the name.
struct Key<T>(PhantomData<T>);

impl<'de, T: Message> DeserializeSeed<'de> for Key<T> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<T: Message> Visitor<'_> for Key<T> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<u64, E> {
        Ok(T::field_key(name))
    }
}

/// Visitor that parses a value from a string with the function `F`, without storing the string.
pub(crate) struct Parsed<T, F>(pub(crate) F, pub(crate) PhantomData<T>);

impl<T, E: fmt::Display, F: FnOnce(&str) -> Result<T, E>> Visitor<'_> for Parsed<T, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<X: serde::de::Error>(self, text: &str) -> Result<T, X> {
        (self.0)(text).map_err(X::custom)
    }
}

/// Visitor that decodes an array.
pub(crate) struct Array<T>(pub(crate) PhantomData<T>);

impl<'de, T: Field> Visitor<'de> for Array<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(Seed::<T>::NEW)? {
            values.push(value);
        }
        Ok(values)
    }
}

/// Visitor that decodes the entries of an object whose keys are data.
pub(crate) struct Entries<T>(pub(crate) PhantomData<T>);

impl<'de, T: Field> Visitor<'de> for Entries<T> {
    type Value = Vec<(Text, T)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(MapKey)? {
            entries.push((key, map.next_value_seed(Seed::<T>::NEW)?));
        }
        Ok(entries)
    }
}

struct MapKey;

impl<'de> DeserializeSeed<'de> for MapKey {
    type Value = Text;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        deserializer.deserialize_str(crate::text::Visitor)
    }
}
