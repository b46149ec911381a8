//! What is asked for (`Accept`) and what came (`Content-Type`): one place that knows both encodings.

use super::{Cause, List, Metadata, Status, proto};
use evenkeel_api::{DecodeError, Encoding, View};
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{any::TypeId, borrow::Cow, time::Duration};

pub(crate) const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf, application/json;q=0.9";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, \
    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json;q=0.9";
const METADATA_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, \
    application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json;q=0.9";

fn is_metadata<V: View>() -> bool {
    TypeId::of::<V>() == TypeId::of::<Metadata>()
}

/// `Accept` for one object, or for a watch of them.
pub(crate) fn accept<V: View>() -> &'static str {
    if is_metadata::<V>() { METADATA } else { accept_whole::<V>() }
}

/// `Accept` for a collection.
pub(crate) fn accept_list<V: View>() -> &'static str {
    if is_metadata::<V>() { METADATA_LIST } else { accept_whole::<V>() }
}

fn accept_whole<V: View>() -> &'static str {
    if V::PROTOBUF { PROTOBUF } else { JSON }
}

/// The encoding of an answer.
pub(crate) fn encoding(headers: &HeaderMap) -> Encoding {
    let protobuf = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"));
    if protobuf { Encoding::Protobuf } else { Encoding::Json }
}

fn broken<V: View>(field: &str, reason: impl Into<Box<str>>) -> DecodeError {
    DecodeError { kind: V::kind().kind.into(), field: field.into(), reason: reason.into() }
}

/// One object.
pub(crate) fn object<V: View>(headers: &HeaderMap, body: &[u8]) -> Result<V, DecodeError> {
    match encoding(headers) {
        Encoding::Json => V::decode(body, Encoding::Json),
        Encoding::Protobuf => {
            let raw = proto::open(body).ok_or_else(|| broken::<V>(".", "not a protobuf object"))?;
            V::decode(raw, Encoding::Protobuf)
        }
    }
}

#[derive(Deserialize)]
struct JsonList<'a> {
    #[serde(borrow, default)]
    metadata: JsonListMeta<'a>,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct JsonListMeta<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, rename = "continue")]
    continue_: Option<Cow<'a, str>>,
}

/// A collection. Items that cannot be decoded are reported beside the others.
pub(crate) fn list<V: View>(headers: &HeaderMap, body: &[u8]) -> Result<List<V>, DecodeError> {
    match encoding(headers) {
        Encoding::Json => {
            let parts: JsonList<'_> = serde_json::from_slice(body)
                .map_err(|error| broken::<V>("items", error.to_string()))?;
            let items = parts.items.unwrap_or_default();
            let continue_ = parts.metadata.continue_.unwrap_or_default();
            let raw = items.iter().map(|item| item.get().as_bytes());
            Ok(collect(raw, Encoding::Json, parts.metadata.resource_version, continue_))
        }
        Encoding::Protobuf => {
            let parts = proto::open(body)
                .and_then(proto::list)
                .ok_or_else(|| broken::<V>("items", "not a protobuf list"))?;
            Ok(collect(parts.items.into_iter(), Encoding::Protobuf, parts.version, parts.continue_))
        }
    }
}

fn collect<'a, V: View>(
    raw: impl ExactSizeIterator<Item = &'a [u8]>,
    encoding: Encoding,
    version: Cow<'_, str>,
    continue_: Cow<'_, str>,
) -> List<V> {
    let mut list = List {
        items: Vec::with_capacity(raw.len()),
        resource_version: version.into(),
        continue_: continue_.into(),
        skipped: Vec::new(),
    };
    for bytes in raw {
        match V::decode(bytes, encoding) {
            Ok(object) => list.items.push(object),
            Err(error) => list.skipped.push(named(bytes, encoding, error)),
        }
    }
    list
}

/// The error with the object's name in its field's path, as far as the name can be read.
pub(crate) fn named(bytes: &[u8], encoding: Encoding, error: DecodeError) -> DecodeError {
    let Ok(Metadata { meta, .. }) = Metadata::decode(bytes, encoding) else { return error };
    let slash = if meta.namespace.is_empty() { "" } else { "/" };
    DecodeError {
        kind: format!("{} {}{slash}{}", error.kind, meta.namespace, meta.name).into(),
        ..error
    }
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// A watch event: its type and its object.
pub(crate) fn event(encoding: Encoding, frame: &[u8]) -> Result<(Cow<'_, str>, &[u8]), Box<str>> {
    match encoding {
        Encoding::Json => {
            let event: JsonEvent<'_> =
                serde_json::from_slice(frame).map_err(|error| error.to_string())?;
            Ok((event.kind, event.object.get().as_bytes()))
        }
        Encoding::Protobuf => {
            proto::event(frame).ok_or_else(|| "not a protobuf watch event".into())
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct JsonStatus {
    message: Option<Box<str>>,
    reason: Option<Box<str>>,
    code: Option<u16>,
    details: Option<JsonDetails>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct JsonDetails {
    causes: Option<Vec<JsonCause>>,
    retry_after_seconds: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonCause {
    reason: Option<Box<str>>,
    message: Option<Box<str>>,
    field: Option<Box<str>>,
}

/// A Status object, without envelope.
pub(crate) fn status_object(encoding: Encoding, bytes: &[u8]) -> Option<Status> {
    if encoding == Encoding::Protobuf {
        return Some(proto::status(bytes));
    }
    let wire: JsonStatus = serde_json::from_slice(bytes).ok()?;
    let details = wire.details.unwrap_or_default();
    let cause = |c: JsonCause| Cause {
        reason: c.reason.unwrap_or_default(),
        message: c.message.unwrap_or_default(),
        field: c.field.unwrap_or_default(),
    };
    Some(Status {
        code: wire.code.unwrap_or_default(),
        reason: wire.reason.unwrap_or_default(),
        message: wire.message.unwrap_or_default(),
        causes: details.causes.unwrap_or_default().into_iter().map(cause).collect(),
        retry_after: details.retry_after_seconds.filter(|s| *s > 0).map(Duration::from_secs),
    })
}

/// The Status of an answer with an error code. A body that is none (a proxy's page) becomes the message, shortened.
pub(crate) fn status(headers: &HeaderMap, code: u16, body: &[u8]) -> Status {
    let found = match encoding(headers) {
        Encoding::Json => status_object(Encoding::Json, body),
        Encoding::Protobuf => proto::open(body).map(proto::status),
    };
    let mut status = found.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&body[..body.len().min(512)]);
        Status { message: text.trim().into(), ..Status::default() }
    });
    status.code = code;
    status.retry_after = retry_after(headers).or(status.retry_after);
    status
}

/// The `Retry-After` header, in its form of seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_with_one_bad_item_keeps_the_others() {
        let body = br#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},{"metadata":7}]}"#;
        let list: List<Metadata> = list(&HeaderMap::new(), body).unwrap();
        assert_eq!(&*list.resource_version, "9");
        assert_eq!(list.items.len(), 1);
        assert_eq!(list.skipped.len(), 1);
    }

    #[test]
    fn null_items_are_none() {
        let list: List<Metadata> =
            list(&HeaderMap::new(), br#"{"metadata":{},"items":null}"#).unwrap();
        assert!(list.items.is_empty());
    }

    #[test]
    fn a_status_is_read_from_json_or_made_from_text() {
        let body = br#"{"kind":"Status","reason":"AlreadyExists","message":"pods \"a\" already exists","code":409}"#;
        let read = status(&HeaderMap::new(), 409, body);
        assert_eq!((&*read.reason, read.code), ("AlreadyExists", 409));
        let page = status(&HeaderMap::new(), 502, b"<html>bad gateway</html>\n");
        assert_eq!((&*page.message, page.code), ("<html>bad gateway</html>", 502));
    }

    #[test]
    fn retry_after_is_seconds() {
        let headers =
            |text: &str| HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().unwrap())]);
        assert_eq!(retry_after(&headers("3")), Some(Duration::from_secs(3)));
        assert_eq!(retry_after(&headers("Wed, 21 Oct 2015 07:28:00 GMT")), None);
    }
}
