//! Whole objects of a kind that is known only at run time.

use super::{
    object::Decode,
    whole::{decode_whole, to_meta},
};
use evenkeel_api::{DecodeError, Encoding, Kind, Meta, View, json};
use kube::api::{DynamicObject, TypeMeta};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;
use std::{borrow::Cow, ops::Deref, sync::Arc};

/// Whole object of any kind. Dereferences to kube's [`DynamicObject`]. Does not contain `metadata.managedFields`.
///
/// The caller knows the kind, as with [`Metadata`](crate::client::Metadata).
///
/// Upstream: `unstructured.Unstructured`.
#[doc(alias = "Unstructured")]
#[derive(Debug, Clone)]
pub struct Dynamic {
    meta: Meta,
    object: Arc<DynamicObject>,
}

impl Dynamic {
    /// Wraps an object that was not decoded from a response, and removes its `managedFields`.
    pub fn new(mut object: DynamicObject) -> Self {
        object.metadata.managed_fields = None;
        Self { meta: to_meta(&object.metadata), object: Arc::new(object) }
    }

    /// Sets the type of an object that has none, such as the items of a list of a built-in kind. Does nothing if the
    /// object is shared already.
    pub(crate) fn with_type(mut self, kind: &Kind) -> Self {
        if let Some(object) = Arc::get_mut(&mut self.object)
            && object.types.is_none()
        {
            let api_version = kind.api_version().into_owned();
            object.types = Some(TypeMeta { api_version, kind: kind.kind.to_string() });
        }
        self
    }

    /// Changes the object with `change`. Does nothing if the object is already shared.
    pub(super) fn map_object(mut self, change: impl FnOnce(&mut DynamicObject)) -> Self {
        if let Some(object) = Arc::get_mut(&mut self.object) {
            change(object);
            self.meta = to_meta(&object.metadata);
        }
        self
    }

    /// Unwraps the object, and clones it if it is shared.
    pub fn into_inner(self) -> DynamicObject {
        Arc::unwrap_or_clone(self.object)
    }

    /// Returns the object.
    pub fn object(&self) -> &Arc<DynamicObject> {
        &self.object
    }
}

impl Deref for Dynamic {
    type Target = DynamicObject;

    fn deref(&self) -> &DynamicObject {
        &self.object
    }
}

impl View for Dynamic {
    const PROTOBUF: bool = false;

    /// Returns a placeholder: the kind of a dynamic object is not part of its type.
    fn kind() -> Kind {
        Kind::new("", "v1", "Object", "objects", true)
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError> {
        decode_whole("object", bytes, encoding).map(Self::new)
    }
}

/// Returns a decoder that adds apiVersion and kind to objects without them, and then calls `decode`.
pub(super) fn typing_decoder(kind: &Kind, decode: Decode) -> Decode {
    let (api_version, kind) = (json!(kind.api_version()), json!(kind.kind));
    let head = format!("{{\"apiVersion\":{api_version},\"kind\":{kind},").into_bytes();
    Arc::new(move |object, encoding| match encoding {
        Encoding::Json => decode(&prepend_type(&head, object), encoding),
        Encoding::Protobuf => decode(object, encoding),
    })
}

/// Returns an object in JSON starting with `head`, unless it has a type.
fn prepend_type<'a>(head: &[u8], object: &'a [u8]) -> Cow<'a, [u8]> {
    let Some(fields) = object.trim_ascii_start().strip_prefix(b"{") else {
        return Cow::Borrowed(object);
    };
    let fields = fields.trim_ascii_start();
    // The server writes the type first, or sorts fields by name, so this prefix test usually avoids the parse in
    // `has_type`.
    let starts = [&b"\"apiVersion\""[..], b"\"kind\"", b"}"];
    if starts.iter().any(|start| fields.starts_with(start)) || has_type(object) {
        return Cow::Borrowed(object);
    }
    Cow::Owned([head, fields].concat())
}

/// Returns whether an object in JSON has a top-level `apiVersion` or `kind`, or does not parse.
fn has_type(object: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Types {
        #[serde(rename = "apiVersion")]
        api_version: Option<IgnoredAny>,
        kind: Option<IgnoredAny>,
    }
    json::from_slice::<Types>(object)
        .map_or(true, |types| types.api_version.is_some() || types.kind.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::object::{downcast, read_as};

    #[test]
    fn objects_of_a_list_get_their_type() {
        let kind = Kind::new("e.com", "v1", "Web", "webs", true);
        let typed = typing_decoder(&kind, super::super::packed::packing_decoder::<Dynamic>());
        let table = [
            (r#"{"metadata":{"name":"a"},"spec":1}"#, "e.com/v1 Web"),
            (r#" { "metadata":{"name":"a"},"spec":1}"#, "e.com/v1 Web"),
            (r#"{"kind":"Web","apiVersion":"e.com/v2","metadata":{},"spec":1}"#, "e.com/v2 Web"),
            (r#"{"metadata":{},"spec":1,"apiVersion":"e.com/v2","kind":"Web"}"#, "e.com/v2 Web"),
        ];
        for (text, expected) in table {
            let object = typed(text.as_bytes(), Encoding::Json).unwrap();
            let object = downcast::<Dynamic>(object).unwrap();
            let types = object.types.as_ref().unwrap();
            assert_eq!(format!("{} {}", types.api_version, types.kind), expected, "{text}");
            assert_eq!(object.data["spec"], 1, "{text}");
        }
        assert!(typed(b"[]", Encoding::Json).is_err());
        let empty = typed(b"{}", Encoding::Json).unwrap();
        assert_eq!(read_as(&*empty, |object: &Dynamic| object.types.is_none()), Some(true));
    }

    #[test]
    fn a_dynamic_object_keeps_all_fields_but_managed_ones() {
        let json =
            br#"{"apiVersion":"e.com/v1","kind":"Web","metadata":{"name":"a","resourceVersion":"7",
            "managedFields":[{"manager":"m"}]},"spec":{"n":1}}"#;
        let object = Dynamic::decode(json, Encoding::Json).unwrap();
        assert_eq!((object.meta().version(), &object.data["spec"]["n"]), (7, &1.into()));
        assert_eq!(object.metadata.managed_fields, None);
        assert!(Dynamic::decode(b"{}x", Encoding::Json).is_err());
    }
}
