//! Normalizes responses of any media type: removes values that always differ.

use std::collections::BTreeMap;
use std::io::Read as _;

use evenkeel_api::protobuf::Transcoder;
use serde_json::{Value, json};

use crate::generate::{Area, Read};
use crate::parity::compare::{mask, mask_text};
use crate::parity::servers::Raw;

/// Headers whose values are compared.
const HEADERS: [&str; 11] = [
    "allow",
    "cache-control",
    "content-encoding",
    "content-type",
    "expires",
    "location",
    "retry-after",
    "vary",
    "warning",
    "www-authenticate",
    "x-content-type-options",
];

/// Headers whose values always differ. Only their presence is compared.
const PRESENT: [&str; 4] =
    ["audit-id", "etag", "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"];

/// Ordinal numbers of the known objects' versions.
pub(crate) type Versions = BTreeMap<String, usize>;

/// Returns the normalized response to a request, for the comparison.
pub(crate) fn normalised(read: &Read, raw: &Raw, versions: &Versions) -> Value {
    let mut headers = json!({});
    for name in HEADERS {
        // The index of documents has hashes of their content, and each server may compute them differently.
        let unhashed = |value: String| match value.split_once("?hash=") {
            Some((path, _)) => format!("{path}?hash="),
            None => value,
        };
        let values: Vec<String> = raw
            .headers
            .get_all(name)
            .iter()
            .map(|value| unhashed(mask_text(&String::from_utf8_lossy(value.as_bytes()))))
            .collect();
        if !values.is_empty() {
            headers[name] = values.into();
        }
    }
    for name in PRESENT.into_iter().filter(|name| raw.headers.contains_key(*name)) {
        headers[name] = "<there>".into();
    }
    let media = raw.headers.get("content-type").map(http::HeaderValue::as_bytes);
    let media = String::from_utf8_lossy(media.unwrap_or_default()).into_owned();
    let bytes = match raw.headers.get("content-encoding").map(http::HeaderValue::as_bytes) {
        Some(b"gzip") => {
            let mut plain = Vec::new();
            match flate2::read::MultiGzDecoder::new(&*raw.bytes).read_to_end(&mut plain) {
                Ok(_) => plain,
                Err(error) => format!("no gzip: {error}").into(),
            }
        }
        _ => raw.bytes.to_vec(),
    };
    if read.area == Area::OpenApi {
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&bytes);
            if media.contains("protobuf") { "<protobuf>".into() } else { text.into() }
        });
        return json!({"code": raw.code, "headers": headers, "body": unhashed(read, body)});
    }
    let (mut body, text) = body(&media, &bytes);
    // Upstream lists the definitions of a group in the random order of a map.
    if let Some(resources) = body.get_mut("resources").and_then(Value::as_array_mut) {
        resources.sort_by_key(|resource| resource["name"].to_string());
    }
    number(&mut body, versions);
    bookmarks(&mut body);
    mask("", &mut body);
    settle("", &mut body);
    json!({"code": raw.code, "headers": headers, "body": body, "text": text})
}

/// Removes the hashes from the URLs in a body of `/openapi/v3`.
fn unhashed(read: &Read, mut body: Value) -> Value {
    if read.path.trim_end_matches('/') == "/openapi/v3" {
        for path in body
            .get_mut("paths")
            .and_then(Value::as_object_mut)
            .into_iter()
            .flat_map(|all| all.values_mut())
        {
            let url = path["serverRelativeURL"].as_str().unwrap_or_default();
            let end = url.find("?hash=").map_or(url.len(), |at| at + "?hash=".len());
            *path = url[..end].into();
        }
    }
    body
}

/// Returns a body as a value, and also as a string if its order and spaces are compared.
fn body(media: &str, bytes: &[u8]) -> (Value, Value) {
    let text = String::from_utf8_lossy(bytes);
    if media.contains("protobuf") {
        if media.contains("stream=watch") {
            return (protobuf_events(bytes).unwrap_or_else(|| "no frames".into()), Value::Null);
        }
        let decoded = Transcoder::decode_envelope(bytes);
        return (decoded.unwrap_or_else(|error| error.to_string().into()), Value::Null);
    }
    if media.contains("yaml") {
        let value = evenkeel_apimachinery::decode::file(bytes);
        return (value.unwrap_or_else(Value::from), Value::Null);
    }
    if let Ok(value) = serde_json::from_slice(bytes) {
        return (value, layout(&text));
    }
    // A stream of documents.
    let events = serde_json::Deserializer::from_slice(bytes).into_iter().collect();
    match events {
        Ok(events) => (Value::Array(events), layout(&text)),
        Err(_) => (text.into(), Value::Null),
    }
}

/// Decodes the events of a watch in protobuf.
fn protobuf_events(mut bytes: &[u8]) -> Option<Value> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (frame, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        bytes = rest;
        let (event, frame) = field(frame)?;
        let (raw, _) = field(frame)?;
        let (object, _) = field(raw)?;
        let object = Transcoder::decode_envelope(object);
        let object = object.unwrap_or_else(|error| error.to_string().into());
        events.push(json!({"type": String::from_utf8_lossy(event), "object": object}));
    }
    Some(events.into())
}

/// Returns the first length-delimited field of a protobuf message, and the rest of the message.
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0;
    for (index, byte) in bytes.get(1..)?.iter().enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return bytes.get(index + 2..)?.split_at_checked(length);
        }
    }
    None
}

/// Replaces the versions of known objects by their numbers.
fn number(value: &mut Value, versions: &Versions) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| number(item, versions)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "resourceVersion" => {
                        // Another function masks a field of this name.
                        *value = match versions.get(text) {
                            Some(number) => json!([format!("version of object {number}")]),
                            None => json!(["a version"]),
                        };
                    }
                    _ => number(value, versions),
                }
            }
        }
        _ => {}
    }
}

/// Keeps only the metadata of a bookmark's object, because upstream encodes empty other fields for some kinds.
fn bookmarks(body: &mut Value) {
    let mut events = match body {
        Value::Array(events) => events.iter_mut().collect(),
        one => vec![one],
    };
    for event in events.iter_mut().filter(|event| event["type"] == "BOOKMARK") {
        if let Some(object) = event["object"].as_object_mut() {
            object.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
        }
    }
}

/// Masks ages, and versions in messages and in continue tokens.
fn settle(name: &str, value: &mut Value) {
    match value {
        // The keys of a server.
        _ if name == "keys" => *value = "<keys>".into(),
        Value::Array(items) => items.iter_mut().for_each(|item| settle(name, item)),
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| settle(name, value)),
        Value::String(text) if name == "cells" && is_age(text) => *text = "<age>".to_owned(),
        Value::String(text) if name == "continue" => *text = opened(text),
        Value::String(text) if name == "message" => *text = unversioned(text),
        // Address and build of the server.
        _ if matches!(name, "serverAddress" | "jwks_uri") => *value = "<address>".into(),
        _ if matches!(name, "buildDate" | "compiler" | "platform" | "goVersion")
            || name.starts_with("git") =>
        {
            *value = "<build>".into();
        }
        _ => {}
    }
}

fn is_age(text: &str) -> bool {
    text.ends_with('s')
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || "dhms".contains(c))
}

/// Decodes a continue token. A positive resource version in it is masked.
fn opened(token: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token);
    let content: Option<Value> = bytes.ok().and_then(|b| serde_json::from_slice(&b).ok());
    let Some(mut content) = content else { return token.to_owned() };
    if content["rv"].as_i64() > Some(0) {
        content["rv"] = "<version>".into();
    }
    // Each server chooses the part of the key that a token contains.
    let start = content["start"].as_str().unwrap_or_default();
    content["start"] = start.rsplit('/').next().unwrap_or_default().into();
    content.to_string()
}

/// Returns a message without the versions in it.
fn unversioned(message: &str) -> String {
    let mut out = String::new();
    let mut rest = message;
    while let Some(at) = ["current: ", "resource version: "]
        .iter()
        .find_map(|before| rest.find(before).map(|at| at + before.len()))
    {
        out.push_str(&rest[..at]);
        rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
        out.push_str("<version>");
        if let Some(more) = rest.strip_prefix(" (") {
            out.push_str(" (<version>");
            rest = more.trim_start_matches(|c: char| c.is_ascii_digit());
        }
    }
    out.push_str(rest);
    out
}

/// Returns the layout of JSON. The order of its fields is ignored, and so is the style of YAML.
fn layout(text: &str) -> Value {
    json!({"is indented": text.contains("\n  "), "ends its line": text.ends_with('\n')})
}

/// Returns the response without messages and their order.
pub(crate) fn without_texts(mut answer: Value) -> Value {
    answer["text"] = Value::Null;
    answer["headers"]["warning"] = Value::Null;
    let body = &mut answer["body"];
    if body["kind"] == "Status" {
        body["message"] = Value::Null;
        for cause in body["details"]["causes"].as_array_mut().into_iter().flatten() {
            cause["message"] = Value::Null;
        }
    }
    answer
}
