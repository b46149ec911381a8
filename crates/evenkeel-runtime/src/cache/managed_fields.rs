//! Removal of `metadata.managedFields` from encoded objects. They are often larger than the rest, and decoding them costs
//! as much.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta<'a> {
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

/// Returns the JSON of an object with null in place of its `managedFields`. Text that is not an object stays as it is, and
/// so do fields that are not written as the server writes them.
pub(super) fn without_managed_fields(json: &[u8]) -> Cow<'_, [u8]> {
    if memmem::find(json, b"\"managedFields\":[").is_none() {
        return Cow::Borrowed(json);
    }
    let Some(fields) = managed_fields(json) else { return Cow::Borrowed(json) };
    // The part points into the text.
    let start = fields.as_ptr().addr().wrapping_sub(json.as_ptr().addr());
    let (Some(before), Some(after)) = (json.get(..start), json.get(start + fields.len()..)) else {
        return Cow::Borrowed(json);
    };
    Cow::Owned([before, b"null", after].concat())
}

fn managed_fields(json: &[u8]) -> Option<&[u8]> {
    let object: Object<'_> = serde_json::from_slice(json).ok()?;
    let meta: ObjectMeta<'_> = serde_json::from_str(object.metadata?.get()).ok()?;
    Some(meta.managed_fields?.get().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_managed_fields_of_the_metadata_are_removed() {
        let table = [
            (
                r#"{"metadata":{"managedFields":[{"a":{}}],"name":"x"}}"#,
                r#"{"metadata":{"managedFields":null,"name":"x"}}"#,
            ),
            (
                r#"{"metadata":{"name":"x","managedFields":[] }, "b":1}"#,
                r#"{"metadata":{"name":"x","managedFields":null }, "b":1}"#,
            ),
            (
                r#"{"metadata":{"name":"x"},"managedFields":[1]}"#,
                r#"{"metadata":{"name":"x"},"managedFields":[1]}"#,
            ),
            (r#"{"metadata":null}"#, r#"{"metadata":null}"#),
            (r#"{"metadata":7}"#, r#"{"metadata":7}"#),
            ("[]", "[]"),
            ("{", "{"),
        ];
        for (json, wanted) in table {
            let stripped = without_managed_fields(json.as_bytes());
            assert_eq!(std::str::from_utf8(&stripped), Ok(wanted), "{json}");
        }
    }
}
