//! Decodes the bodies of responses for audit events.

use std::borrow::Cow;
use std::io::Read as _;

use evenkeel_api::protobuf::{Envelope, Transcoder};
use flate2::read::GzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::Value;

use evenkeel_apimachinery::headers::text;

/// Field `kind` of a Status in compact JSON.
const STATUS_KIND: &[u8] = b"\"kind\":\"Status\"";

/// Maximum size of a JSON body that is searched for a Status, in bytes.
const MAX_STATUS_SIZE: usize = 64 * 1024;

/// Maximum size of a decompressed body in bytes.
const MAX_BODY_SIZE: u64 = 512 * 1024 * 1024;

/// Returns whether a body may be a Status, without decoding all of it.
pub(super) fn may_be_status(body: &[u8]) -> bool {
    body.len() <= MAX_STATUS_SIZE
        && body.windows(STATUS_KIND.len()).any(|window| window == STATUS_KIND)
        || Envelope::open(body)
            .is_ok_and(|envelope| envelope.kind == "Status" && envelope.api_version == "v1")
}

/// Returns whether an object is a Status.
pub(super) fn is_status(object: &Value) -> bool {
    object["kind"] == "Status" && object["apiVersion"] == "v1"
}

/// Decodes the object in a body. Returns `None` for other content, such as a log.
pub(super) fn decode(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    let media_type = text(headers, CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    let body = match text(headers, CONTENT_ENCODING) {
        "gzip" => {
            let mut plain = Vec::new();
            GzDecoder::new(body).take(MAX_BODY_SIZE).read_to_end(&mut plain).ok()?;
            Cow::Owned(plain)
        }
        _ => Cow::Borrowed(body),
    };
    match media_type {
        "application/json" => serde_json::from_slice(&body).ok(),
        "application/vnd.kubernetes.protobuf" => {
            let mut object = Transcoder::decode_envelope(&body).ok()?;
            // Protobuf cannot distinguish an empty list from an absent one. In JSON, a list always has its items.
            if let Some(items) = object.get_mut("items").filter(|items| items.is_null()) {
                *items = Value::Array(Vec::new());
            }
            Some(object)
        }
        "application/yaml" => evenkeel_apimachinery::decode::file(&body).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;

    fn headers(media: &'static str, coding: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, media.parse().expect("a value"));
        if !coding.is_empty() {
            headers.insert(CONTENT_ENCODING, coding.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn bodies_of_each_encoding_are_read() {
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "m"}});
        let protobuf = Transcoder::encode_envelope(&map).expect("protobuf");
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(map.to_string().as_bytes()).expect("compressed");
        let gzip = gzip.finish().expect("compressed");
        for (media, coding, body) in [
            ("application/json", "", map.to_string().into_bytes()),
            ("application/json;charset=utf-8", "gzip", gzip),
            ("application/vnd.kubernetes.protobuf", "", protobuf.clone()),
            (
                "application/yaml",
                "",
                b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: m}\n".to_vec(),
            ),
        ] {
            assert_eq!(decode(&headers(media, coding), &body).as_ref(), Some(&map), "{media}");
        }
        assert_eq!(decode(&headers("text/plain", ""), b"a log"), None);
        assert_eq!(decode(&headers("application/json", ""), b"{"), None);
        assert!(!may_be_status(&protobuf) && !is_status(&map));
        let status = json!({"kind": "Status", "apiVersion": "v1", "code": 404});
        assert!(may_be_status(&Transcoder::encode_envelope(&status).expect("protobuf")));
        assert!(may_be_status(status.to_string().as_bytes()) && is_status(&status));
    }
}
