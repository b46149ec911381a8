//! JSON from untrusted input, with one limit on its nesting for all readers and writers of the project.
//!
//! Functions that walk a JSON value are recursive. Threads have stacks of 2 MiB, and debug builds have large stack
//! frames. The decoders and the storage therefore reject objects that nest too deep, so that no later walk overflows
//! the stack.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

use std::fmt;

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Error, Value};

/// Maximum nesting of arrays and objects in an API object. Go's decoder accepts 10,000 levels because its stacks
/// grow. The deepest CustomResourceDefinitions in use have about 60 levels.
pub const MAX_DEPTH: usize = 256;

/// Additional levels of lists, watch events and reviews around an object.
const WRAPPER_DEPTH: usize = 8;

/// Maximum number of values in the body of a request, in any encoding. An object of the size that etcd stores, 1.5 MiB,
/// has fewer in JSON, where a value takes at least two bytes. In memory, a value takes many times the bytes that it may
/// take in a body.
pub const MAX_VALUES: usize = 1_000_000;

/// Error message for a body with more values than [`MAX_VALUES`].
pub const TOO_MANY_VALUES: &str = "exceeded max number of values";

/// Error message of Go's decoder for a document that nests too deep.
pub const TOO_DEEP: &str = "exceeded max depth";

/// Decodes JSON with objects of at most [`MAX_DEPTH`] levels. `serde_json`'s own limit of 128 levels would reject
/// objects that the server stores.
///
/// # Errors
/// Fails if the bytes are not JSON of the type, or nest too deep.
pub fn from_slice<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    // Most documents are within `serde_json`'s own limit, so their depth need not be measured first.
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let mut reader = deserializer(bytes)?;
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Decodes a JSON document with objects of at most [`MAX_DEPTH`] levels. Faster than [`from_slice`] for a [`Value`]: the maps of
/// a document whose keys are sorted, as encoded values are, need no search for the place of each key.
///
/// # Errors
/// Fails if the bytes are not JSON, or nest too deep.
pub fn value(bytes: &[u8]) -> Result<Value, Error> {
    from_slice::<Document>(bytes).map(|document| document.0)
}

/// A value that is decoded by [`value`].
struct Document(Value);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocumentVisitor).map(Self)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Document(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some((key, Document(value))) = entries.next_entry::<String, _>()? {
            fields.push((key, value));
        }
        // Builds the map in one step. The last of duplicate keys wins.
        Ok(Value::Object(fields.into_iter().collect()))
    }
}

/// Returns a deserializer with the same limit on nesting as [`from_slice`].
///
/// # Errors
/// Fails if the bytes nest too deep.
pub fn deserializer(bytes: &[u8]) -> Result<Deserializer<serde_json::de::SliceRead<'_>>, Error> {
    if is_nested_deeper(bytes, MAX_DEPTH + WRAPPER_DEPTH) {
        return Err(Error::custom(TOO_DEEP));
    }
    let mut reader = Deserializer::from_slice(bytes);
    reader.disable_recursion_limit();
    Ok(reader)
}

/// Returns whether a JSON document nests more than `limit` arrays and objects. The function is not recursive. It only
/// counts brackets outside strings, so the document need not be valid JSON.
pub fn is_nested_deeper(text: &[u8], limit: usize) -> bool {
    let (mut depth, mut position) = (0usize, 0);
    while let Some(byte) = text.get(position) {
        match byte {
            b'{' | b'[' => {
                depth = depth.saturating_add(1);
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => position = end_of_string(text, position.saturating_add(1)),
            _ => {}
        }
        position = position.saturating_add(1);
    }
    false
}

/// Returns an upper bound on the number of values in a JSON document. It only counts the bytes that precede a value, so the
/// document need not be valid JSON.
pub(crate) fn max_values(text: &[u8]) -> usize {
    let (mut count, mut position) = (1usize, 0);
    while let Some(byte) = text.get(position) {
        match byte {
            b'{' | b'[' | b',' => count = count.saturating_add(1),
            b'"' => position = end_of_string(text, position.saturating_add(1)),
            _ => {}
        }
        position = position.saturating_add(1);
    }
    count
}

/// Returns the end of the string whose opening quote precedes `position`.
fn end_of_string(text: &[u8], mut position: usize) -> usize {
    loop {
        match text.get(position) {
            None | Some(b'"') => return position,
            Some(b'\\') => position = position.saturating_add(2),
            Some(_) => position = position.saturating_add(1),
        }
    }
}

/// Returns whether a value nests more than `limit` arrays and objects. Does not visit deeper levels.
pub fn is_deeper(value: &Value, limit: usize) -> bool {
    let inner_limit = limit.checked_sub(1);
    match (value, inner_limit) {
        (Value::Array(_) | Value::Object(_), None) => true,
        (Value::Array(items), Some(inner_limit)) => {
            items.iter().any(|item| is_deeper(item, inner_limit))
        }
        (Value::Object(entries), Some(inner_limit)) => {
            entries.values().any(|entry| is_deeper(entry, inner_limit))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn nesting_is_bounded() {
        let deepest = MAX_DEPTH + WRAPPER_DEPTH;
        assert!(from_slice::<Value>(nested(deepest).as_bytes()).is_ok());
        let error = from_slice::<Value>(nested(deepest + 1).as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), TOO_DEEP);
        assert!(from_slice::<Value>(nested(1_000_000).as_bytes()).is_err());
        assert!(from_slice::<Value>(b"[1] 2").is_err(), "trailing characters");
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        for (text, depth) in [
            (r#""[[[""#, 0),
            (r#"["\"[[",{"[":"\\"},[]]"#, 2),
            (r#"{"a":[{"b":1}],"c":{}}"#, 3),
            ("1", 0),
            ("]]][", 1),
        ] {
            assert!(!is_nested_deeper(text.as_bytes(), depth), "{text}");
            assert!(depth == 0 || is_nested_deeper(text.as_bytes(), depth - 1), "{text}");
        }
        assert!(!is_nested_deeper(br#""\"#, 0) && !is_nested_deeper(b"\"", 0));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!(1)),
            "[\\[\\]{}\"\\\\]{0,4}".prop_map(Value::from)
        ];
        leaf.prop_recursive(6, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[\\[{\"]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn value_and_text_have_the_same_depth(value in any_value(), limit in 0usize..8) {
            prop_assert_eq!(is_deeper(&value, limit), is_nested_deeper(value.to_string().as_bytes(), limit));
        }
    }

    proptest! {
        #[test]
        fn documents_decode_as_serde_decodes_them(
            document in any_value(),
            position in any::<prop::sample::Index>(),
            inserted in "[\\[\\]{}\"\\\\,: 1e.-]?",
        ) {
            let mut text = document.to_string();
            text.insert_str(position.index(text.len()), &inserted);
            let expected = serde_json::from_slice::<Value>(text.as_bytes());
            let found = value(text.as_bytes());
            prop_assert_eq!(found.as_ref().ok(), expected.as_ref().ok());
            prop_assert_eq!(
                found.err().map(|error| error.to_string()),
                expected.err().map(|error| error.to_string())
            );
        }
    }

    #[test]
    fn documents_keep_the_last_of_duplicate_keys() {
        let text = r#"{"b": {"z": [1, -2, 2.5, 18446744073709551615, null, true, "x"], "a": {}}, "a": 1, "b": {"c": "\u00fc"}}"#;
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value(text.as_bytes()).unwrap(), expected);
        assert_eq!(expected["b"], json!({"c": "ü"}));
    }
}
