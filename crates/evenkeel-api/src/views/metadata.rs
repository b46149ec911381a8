//! The metadata of any object.

use crate::Meta;
use crate::decode::{decode_message, message, view};
use crate::text::Text;
use crate::{DecodeError, Encoding};

message! {
    /// An object of any kind, with only its metadata. The reader knows the kind.
    pub struct Metadata("k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata") {
        /// Metadata of the object, whatever its kind.
        meta: Meta = 1 "metadata",
    }
}

view!(Metadata, "meta.k8s.io", "v1", "PartialObjectMetadata", "", true);

message! {
    /// Identity and version of an object whose content is known already.
    pub struct Identity("k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata") {
        /// The part of the metadata that identifies the object.
        meta: IdentityMeta = 1 "metadata",
    }
}

message! {
    /// The part of the metadata that identifies.
    pub struct IdentityMeta("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
        /// Name, unique in namespace and resource.
        name: Text = 1 "name",
        /// Namespace, empty for cluster-scoped objects.
        namespace: Text = 3 "namespace",
        /// Identifier that no other object has, past or present.
        uid: Text = 5 "uid",
        /// Version of the object in the store.
        resource_version: Text = 6 "resourceVersion",
    }
}

impl Identity {
    /// Reads it from an object of any kind.
    ///
    /// # Errors
    /// When that is no object.
    pub fn decode(object: &[u8], encoding: Encoding) -> Result<Self, DecodeError> {
        decode_message("PartialObjectMetadata", object, encoding)
    }
}
