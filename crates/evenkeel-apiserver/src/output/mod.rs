//! Answers as clients want them: JSON, YAML or protobuf; the object, a Table, or its metadata alone.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use crate::resource::ResourceType;
use crate::status::StatusError;

/// What the answer is made for: it bounds what may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One object.
    Object,
    /// A list.
    List,
    /// A stream of events.
    Watch,
}

/// `metadata` of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListMeta {
    /// Revision of the list.
    pub(crate) resource_version: u64,
    /// Token for the next page, empty on the last.
    pub(crate) token: String,
    /// Objects after this page, where it is known.
    pub(crate) remaining: Option<u64>,
}

/// A form of answers, negotiated once per request. Equal formats give equal bytes, so that a watch event is encoded once per format.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Format {
    pretty: bool,
}

impl Format {
    /// Chooses by `Accept` and the query (`pretty`, `includeObject`); a 406 where nothing fits.
    pub(crate) fn negotiate(
        _resource: &ResourceType,
        _headers: &HeaderMap,
        _query: &[(String, String)],
        _purpose: Purpose,
    ) -> Result<Self, StatusError> {
        Ok(Self { pretty: false })
    }

    /// Whether an object of `resource` is answered as it is stored (compact JSON in the stored version): nothing need be encoded.
    pub(crate) fn is_stored_form(&self, resource: &ResourceType) -> bool {
        resource.stored && !self.pretty
    }

    /// `Content-Type` of an answer, or of a stream of events.
    pub(crate) fn content_type(&self, _purpose: Purpose) -> HeaderValue {
        HeaderValue::from_static("application/json")
    }

    /// Encodes one object (compact JSON in the stored version of `resource`).
    pub(crate) fn object(
        &self,
        _resource: &ResourceType,
        stored: &[u8],
    ) -> Result<Bytes, StatusError> {
        Ok(Bytes::copy_from_slice(stored))
    }

    /// Encodes a list (of objects as in [`object`](Self::object)).
    pub(crate) fn list(
        &self,
        resource: &ResourceType,
        items: &mut dyn ExactSizeIterator<Item = Bytes>,
        meta: &ListMeta,
    ) -> Result<Bytes, StatusError> {
        let mut out = Vec::new();
        let head =
            serde_json::json!({"kind": &*resource.list_kind, "apiVersion": &*resource.api_version});
        out.extend_from_slice(head.to_string().trim_end_matches('}').as_bytes());
        out.extend_from_slice(
            format!(",\"metadata\":{{\"resourceVersion\":\"{}\"", meta.resource_version).as_bytes(),
        );
        if !meta.token.is_empty() {
            out.extend_from_slice(format!(",\"continue\":\"{}\"", meta.token).as_bytes());
        }
        if let Some(remaining) = meta.remaining {
            out.extend_from_slice(format!(",\"remainingItemCount\":{remaining}").as_bytes());
        }
        out.extend_from_slice(b"},\"items\":[");
        for (at, item) in items.enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&item);
        }
        out.extend_from_slice(b"]}");
        Ok(out.into())
    }

    /// Encodes one event of a watch as it goes on the wire, with its frame. `event` is `ADDED`, `MODIFIED`, `DELETED`,
    /// `BOOKMARK` (then `object` is of the resource's kind with only resourceVersion and annotations) or `ERROR` (a Status).
    /// `first` is whether the stream has had no event yet (a Table then has its columns).
    pub(crate) fn event(
        &self,
        _resource: &ResourceType,
        event: &str,
        object: &[u8],
        _first: bool,
    ) -> Result<Bytes, StatusError> {
        let mut out = Vec::with_capacity(object.len() + 32);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(event.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        out.extend_from_slice(object);
        out.extend_from_slice(b"}\n");
        Ok(out.into())
    }

    /// Encodes a refusal (or a success of a deletion): `status` is a Status as JSON.
    pub(crate) fn status(headers: &HeaderMap, status: &[u8]) -> (HeaderValue, Bytes) {
        let _ = headers;
        (HeaderValue::from_static("application/json"), Bytes::copy_from_slice(status))
    }
}
