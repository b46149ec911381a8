//! The metadata of any object.

use crate::Meta;
use crate::decode::{message, view};

message! {
    /// An object of any kind, with only its metadata. Which kind it is of is known to whoever asked for it.
    pub struct Metadata("k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata") {
        /// Metadata.
        meta: Meta = 1 "metadata",
    }
}

view!(Metadata, "meta.k8s.io", "v1", "PartialObjectMetadata", "", true);
