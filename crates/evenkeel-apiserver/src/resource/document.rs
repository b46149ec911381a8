//! Discovery and OpenAPI documents about the resources of a table. Each snapshot of the table creates a document once.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use jiff::Timestamp;

/// OpenAPI documents of a snapshot. The first request for a document creates it.
#[derive(Clone, Default)]
pub(crate) struct OpenApiDocuments {
    /// Version 2 of the whole API, in JSON and in protobuf.
    pub(crate) version_two: [OnceLock<PackedDocument>; 2],
    /// Version 3 of the custom resources by path, such as `apis/example.com/v1`.
    pub(crate) version_three: OnceLock<BTreeMap<String, PackedDocument>>,
    /// When the documents were first served.
    pub(crate) modified: OnceLock<Timestamp>,
}

/// OpenAPI document, compressed by gzip.
#[derive(Clone)]
pub(crate) struct PackedDocument {
    /// Hash in hexadecimal digits: of the part that custom resources add to a recorded document, or of the whole
    /// document.
    pub(crate) hash: String,
    pub(crate) bytes: Bytes,
}

/// Document that clients may cache and revalidate by ETag.
#[derive(Clone)]
pub(crate) struct Document {
    body: Bytes,
    content_type: &'static str,
    tag: Option<HeaderValue>,
}

impl Document {
    /// Creates a document whose ETag is a hash of its bytes.
    pub(crate) fn new(body: Bytes, content_type: &'static str) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA512, &body);
        let tag: String = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        Self { body, content_type, tag: HeaderValue::try_from(format!("\"{tag}\"")).ok() }
    }

    /// Responds with the document, or with a 304 if the client has its ETag.
    pub(crate) fn response(&self, headers: &HeaderMap) -> Response<Bytes> {
        let unchanged = self.tag.is_some() && headers.get(IF_NONE_MATCH) == self.tag.as_ref();
        let mut response = Response::new(if unchanged { Bytes::new() } else { self.body.clone() });
        if unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            let content_type = HeaderValue::from_static(self.content_type);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
        }
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        if let Some(tag) = &self.tag {
            response.headers_mut().insert(ETAG, tag.clone());
        }
        response
    }
}
