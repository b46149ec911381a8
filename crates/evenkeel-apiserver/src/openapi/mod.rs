//! OpenAPI documents of all served resources at `/openapi/v2` and `/openapi/v3`.
//!
//! The documents of built-in groups are recorded. They are compressed, because most clients accept gzip. The server
//! builds the documents of custom resources from their definitions.

mod content;
mod custom;
mod protobuf;
mod recorded;
mod response;

use std::collections::BTreeMap;
use std::io::Write as _;

use bytes::Bytes;
use content::Content;
use flate2::{Compression, write::GzEncoder};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, VARY};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use recorded::{V2_JSON, V2_PROTOBUF, compressed, decompressed, index};
use response::set_header;

use crate::api::Api;
use crate::resource::Rows;
use crate::resource::document::PackedDocument;
use evenkeel_apimachinery::encode::accept;

/// Media type of the v2 document in protobuf.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// Media type of the same format that clients from before 2023 request.
const OLD_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Responds to a request for an OpenAPI path, of any method; `None` for other paths.
pub(crate) fn serve(
    api: &Api,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    query: &[(String, String)],
) -> Option<Response<Bytes>> {
    match path {
        "/openapi/v2" => Some(version_two(api, method, headers)),
        "/openapi/v3" => {
            let content = Content {
                content_type: "text/plain; charset=utf-8",
                etag: "",
                modified: modified(api),
                bytes: version_three_index(api).to_string().into(),
                is_packed: false,
            };
            Some(content::serve(method, headers, content))
        }
        path => {
            let name = path.strip_prefix("/openapi/v3/")?;
            Some(version_three(api, method, name, headers, query).unwrap_or_else(|code| {
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = code;
                if code == StatusCode::NOT_ACCEPTABLE {
                    set_header(&mut response, VARY, "Accept");
                }
                response
            }))
        }
    }
}

/// Returns when the documents last changed: when the served resources did, or when the server started.
fn modified(api: &Api) -> Timestamp {
    *api.table.rows().openapi.modified.get_or_init(|| api.clock.now())
}

/// Returns the SHA-512 hash in hexadecimal digits.
fn hash(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA512, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Returns the v2 document of the whole API in JSON or protobuf.
fn version_two(api: &Api, method: &Method, headers: &HeaderMap) -> Response<Bytes> {
    // Requested media type, content type of the response, and format.
    let formats = [
        ("application/json", "application/json", Format::Json),
        (PROTOBUF, PROTOBUF, Format::Protobuf),
        (OLD_PROTOBUF, PROTOBUF, Format::Protobuf),
    ];
    let chosen = accept::media_ranges(headers).iter().find_map(|media_range| {
        formats
            .iter()
            .find(|(requested, _, _)| media_range.includes(requested))
            .map(|(_, content_type, format)| (*content_type, *format))
    });
    let Some((content_type, format)) = chosen else {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
        set_header(&mut response, VARY, "Accept-Encoding");
        response.headers_mut().append(VARY, HeaderValue::from_static("Accept"));
        return response;
    };
    let rows = api.table.rows();
    let document = rows.openapi.version_two[format as usize].get_or_init(|| format.document(&rows));
    let etag = format!("\"{}\"", document.hash);
    let content = Content {
        content_type,
        etag: &etag,
        modified: modified(api),
        bytes: document.bytes.clone(),
        is_packed: true,
    };
    let mut response = content::serve(method, headers, content);
    set_header(&mut response, VARY, "Accept-Encoding");
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept"));
    response
}

/// Format of the v2 document.
#[derive(Clone, Copy)]
enum Format {
    Json,
    Protobuf,
}

impl Format {
    /// Encodes the v2 document of a snapshot of the table. The document's hash is the same in both formats.
    fn document(self, rows: &Rows) -> PackedDocument {
        let (definitions, paths) = custom::definitions_and_paths(rows);
        let recorded = match self {
            Self::Json => V2_JSON,
            Self::Protobuf => V2_PROTOBUF,
        };
        if definitions.is_empty() {
            return PackedDocument { hash: hash(V2_JSON), bytes: Bytes::from_static(recorded) };
        }
        let added = json!({"definitions": &definitions, "paths": &paths});
        let hash = hash(added.to_string().as_bytes());
        let bytes = match self {
            Self::Json => append_compressed(&[], &with_custom(definitions, paths)),
            // Concatenated protobuf messages decode as one message, and concatenated gzip streams as one stream.
            Self::Protobuf => append_compressed(recorded, &protobuf::document(paths, definitions)),
        };
        PackedDocument { hash, bytes }
    }
}

/// Returns the v3 documents of a snapshot's custom resources by name.
fn custom_documents(rows: &Rows) -> &BTreeMap<String, PackedDocument> {
    rows.openapi.version_three.get_or_init(|| {
        let pack = |(name, document): (String, Value)| {
            let text = document.to_string();
            let bytes = append_compressed(&[], text.as_bytes());
            (name, PackedDocument { hash: hash(text.as_bytes()), bytes })
        };
        custom::documents(rows).into_iter().map(pack).collect()
    })
}

/// Appends a separately compressed part to a compressed body. Both decompress to one body.
fn append_compressed(compressed: &[u8], appended: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(compressed.to_vec(), Compression::fast());
    // Writes to memory do not fail.
    let _ = encoder.write_all(appended);
    encoder.finish().unwrap_or_default().into()
}

/// Returns the recorded v2 document in JSON, with the definitions and paths of custom resources added.
fn with_custom(
    custom_definitions: Map<String, Value>,
    custom_paths: Map<String, Value>,
) -> Vec<u8> {
    let text = decompressed(V2_JSON).ok();
    let document: Option<Value> = text.and_then(|text| serde_json::from_slice(&text).ok());
    let mut document = document.unwrap_or_else(|| json!({"definitions": {}}));
    if let Some(definitions) = document.get_mut("definitions").and_then(Value::as_object_mut) {
        definitions.extend(custom_definitions);
    }
    if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
        paths.extend(custom_paths);
    }
    document.to_string().into()
}

/// Returns whether this server has a v3 document of this name.
pub(crate) fn is_own(api: &Api, name: &str) -> bool {
    index().contains_key(name) || custom_documents(&api.table.rows()).contains_key(name)
}

/// Returns the index of v3 documents, with each document's hash in its URL. Documents of extension API servers have
/// the URLs of those servers' own indexes.
fn version_three_index(api: &Api) -> Value {
    let mut paths: serde_json::Map<String, Value> = index()
        .iter()
        .map(|(name, (hash, _, _))| {
            (name.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash={hash}")}))
        })
        .collect();
    for (name, PackedDocument { hash, .. }) in custom_documents(&api.table.rows()) {
        paths.insert(
            name.clone(),
            json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash={hash}")}),
        );
    }
    for (name, url) in api.aggregation.current().openapi() {
        paths.entry(name).or_insert_with(|| url.clone());
    }
    json!({"paths": paths})
}

/// Returns one v3 document. Clients may cache a URL with the current hash forever. The server redirects a URL with
/// another hash to the current one.
fn version_three(
    api: &Api,
    method: &Method,
    name: &str,
    headers: &HeaderMap,
    query: &[(String, String)],
) -> Result<Response<Bytes>, StatusCode> {
    let rows = api.table.rows();
    let (hash, compressed) = if let Some((hash, recorded)) = compressed(name) {
        (hash, Bytes::from_static(recorded))
    } else if let Some(document) = custom_documents(&rows).get(name) {
        (document.hash.as_str(), document.bytes.clone())
    } else {
        return Err(StatusCode::NOT_FOUND);
    };
    // The server has no v3 documents in protobuf.
    let ranges = accept::media_ranges(headers);
    if !ranges.iter().any(|media_range| media_range.includes("application/json")) {
        return Err(StatusCode::NOT_ACCEPTABLE);
    }
    let etag = format!("\"{hash}\"");
    let requested_hash = query.iter().find(|(key, _)| key == "hash");
    let requested_hash =
        requested_hash.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty());
    if requested_hash.is_some_and(|requested_hash| requested_hash != hash) {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
        set_header(
            &mut response,
            http::header::LOCATION,
            &format!("/openapi/v3/{name}?hash={hash}"),
        );
        set_header(&mut response, CONTENT_TYPE, "application/json");
        set_header(&mut response, ETAG, &etag);
        set_header(&mut response, VARY, "Accept");
        return Ok(response);
    }
    let content = Content {
        content_type: "application/json",
        etag: &etag,
        modified: modified(api),
        bytes: compressed,
        is_packed: true,
    };
    let mut response = content::serve(method, headers, content);
    set_header(&mut response, VARY, "Accept");
    if requested_hash.is_some() {
        set_header(&mut response, CACHE_CONTROL, "public, immutable");
        set_header(&mut response, EXPIRES, "Fri, 31 Dec 9999 23:59:59 UTC");
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_document_can_be_read() {
        assert!(index().contains_key("apis/apps/v1") && index().contains_key("api/v1"));
        for name in index().keys() {
            let (_, packed) = compressed(name).expect("inside the pack");
            let text = decompressed(packed).expect(name);
            let document: Value = serde_json::from_slice(&text).expect(name);
            assert!(
                document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")),
                "{name}"
            );
        }
    }
}
