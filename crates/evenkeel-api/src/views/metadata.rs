//! Metadata of objects of any kind.

use crate::Meta;
use crate::decode::{decode_message, message, view};
use crate::text::Text;
use crate::{DecodeError, Encoding};

message! {
    /// Metadata of an object of any kind. The caller knows the kind.
    pub struct Metadata("k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata") {
        /// Metadata of the object, independent of its kind.
        meta: Meta = 1 "metadata",
    }
}

view!(Metadata, "meta.k8s.io", "v1", "PartialObjectMetadata", "", namespaced);

message! {
    /// Identity and version of an object whose content is already known.
    pub struct Identity("k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata") {
        /// Part of the metadata that identifies the object.
        meta: IdentityMeta = 1 "metadata",
    }
}

message! {
    /// Part of the metadata that identifies an object.
    pub struct IdentityMeta("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
        /// Name, unique within the namespace and resource.
        name: Text = 1 "name",
        /// Namespace; empty for cluster-scoped objects.
        namespace: Text = 3 "namespace",
        /// Unique identifier that no other object has, past or present.
        uid: Text = 5 "uid",
        /// resourceVersion of the object.
        resource_version: Text = 6 "resourceVersion",
    }
}

impl Identity {
    /// Decodes the identity of an object of any kind.
    ///
    /// # Errors
    /// Fails if the bytes are not an object.
    pub fn decode(object: &[u8], encoding: Encoding) -> Result<Self, DecodeError> {
        decode_message("PartialObjectMetadata", object, encoding)
    }
}
