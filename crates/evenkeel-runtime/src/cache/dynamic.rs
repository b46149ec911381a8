//! Whole objects of a kind that is known only at run time.

use super::full::{decode_whole, to_meta};
use evenkeel_api::{DecodeError, Encoding, Kind, Meta, View};
use kube::api::DynamicObject;
use std::{ops::Deref, sync::Arc};

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

#[cfg(test)]
mod tests {
    use super::*;

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
