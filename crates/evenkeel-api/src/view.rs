//! How an object is read from the wire.

use crate::{Kind, Meta, Text, views::Metadata};

/// How bytes from the API server are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`: the body of the message, after magic and envelope were taken off.
    Protobuf,
}

/// A kind of object as its readers see it: a lean struct with only the fields that somebody reads, or a full
/// `k8s-openapi` (or derived) type. See `views` for the lean ones.
pub trait View: Sized + Send + Sync + 'static {
    /// Which resource it is.
    fn kind() -> Kind;
    /// Whether it can be decoded from Kubernetes protobuf.
    const PROTOBUF: bool;
    /// Its metadata.
    fn meta(&self) -> &Meta;

    /// This object in another version, where making it so is less work than reading it; a cache tells of one that is gone
    /// in its last state and the version of its deletion.
    fn at_version(&self, version: &Text) -> Option<Self> {
        let _ = version;
        None
    }

    /// Decodes one object, without an envelope.
    fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError>;
}

/// An object that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} cannot be decoded: {field}: {reason}")]
pub struct DecodeError {
    /// The kind that was being read.
    pub kind: Box<str>,
    /// Path of the offending field, such as `spec.containers[2].ports`.
    pub field: Box<str>,
    /// What is wrong with it.
    pub reason: Box<str>,
}

impl DecodeError {
    /// The error with the name of the object that `bytes` are, as far as that can be read.
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
