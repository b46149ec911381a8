//! Decoding of objects into views.

use crate::{Kind, Meta, Text, views::Metadata};

/// How bytes from the API server are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The media type `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`: the body of the message, after magic and envelope were taken off.
    Protobuf,
}

/// A decoded object: a view, that is a struct with only the fields that are read, or a full
/// `k8s-openapi` (or derived) type. See `views` for the former.
#[doc(alias = "runtime.Object")]
pub trait View: Sized + Send + Sync + 'static {
    /// Returns the resource type.
    fn kind() -> Kind;
    /// Whether it can be decoded from Kubernetes protobuf.
    const PROTOBUF: bool;
    /// Returns the object's metadata.
    fn meta(&self) -> &Meta;

    /// Returns this object with another version, where that is cheaper than decoding it again. A cache reports a
    /// deleted object in its last state, with the version of its deletion.
    /// in its last state and the version of its deletion.
    fn at_version(&self, version: &Text) -> Option<Self> {
        let _ = version;
        None
    }

    /// Decodes one object, without an envelope.
    fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError>;
}

/// An object that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} cannot be decoded: {field}: {reason}")]
pub struct DecodeError {
    /// Kind of the object.
    pub kind: Box<str>,
    /// Path of the offending field, such as `spec.containers[2].ports`.
    pub field: Box<str>,
    /// Why the field is invalid.
    pub reason: Box<str>,
}

impl DecodeError {
    /// Adds the name of the encoded object to the error, where it can be decoded.
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
