//! Full nodes as JSON, for extenders that do not cache nodes.

use super::wire::Raw;
use evenkeel_api::{DecodeError, Encoding, Kind, Meta, View, views::Metadata};
use serde_json::value::RawValue;
use std::sync::Arc;

/// A node with all its fields, as JSON.
pub(crate) struct FullNode {
    meta: Meta,
    pub(super) json: Raw,
}

impl View for FullNode {
    const PROTOBUF: bool = false;

    fn kind() -> Kind {
        evenkeel_api::views::Node::kind()
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError> {
        let Metadata { meta } = Metadata::decode(bytes, encoding)?;
        let json: Box<RawValue> = serde_json::from_slice(bytes).map_err(|error| DecodeError {
            kind: "Node".into(),
            field: ".".into(),
            reason: error.to_string().into(),
        })?;
        Ok(Self { meta, json: Arc::from(json) })
    }
}
