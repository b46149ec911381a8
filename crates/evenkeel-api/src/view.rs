//! Decoding of objects into views.

use crate::{Kind, Meta, Text, views::Metadata};

/// Encoding of bytes from the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The media type `application/json`.
    Json,
    /// The media type `application/vnd.kubernetes.protobuf`: the object's message, without magic and envelope.
    Protobuf,
}

/// A decoded object: either a view (see `views`), which has only the fields that the project reads, or a full type
/// from `k8s-openapi` or derived from such a type.
#[doc(alias = "runtime.Object")]
pub trait View: Sized + Send + Sync + 'static {
    /// Returns the resource type.
    fn kind() -> Kind;
    /// Whether the type can be decoded from Kubernetes protobuf.
    const PROTOBUF: bool;
    /// Returns the object's metadata.
    fn meta(&self) -> &Meta;

    /// Returns a copy of the object with another resource version, or `None` if decoding the object again is cheaper.
    /// A cache reports a deleted object in its last state, but with the version of its deletion.
    fn at_version(&self, version: &Text) -> Option<Self> {
        let _ = version;
        None
    }

    /// Decodes one object without an envelope.
    fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError>;
}

/// Error for an object that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} cannot be decoded: {field}: {reason}")]
pub struct DecodeError {
    /// Kind of the object.
    pub kind: Box<str>,
    /// Path of the invalid field, such as `spec.containers[2].ports`.
    pub field: Box<str>,
    /// Reason why the field is invalid.
    pub reason: Box<str>,
}

impl DecodeError {
    /// Adds the name of the encoded object to the error, if the name can be decoded.
    #[must_use]
    pub fn naming(self, bytes: &[u8], encoding: Encoding) -> Self {
        let Ok(Metadata { meta }) = Metadata::decode(bytes, encoding) else { return self };
        let slash = if meta.namespace.is_empty() { "" } else { "/" };
        Self {
            kind: format!("{} {}{slash}{}", self.kind, meta.namespace, meta.name).into(),
            ..self
        }
    }
}
