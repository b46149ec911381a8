//! Content negotiation: `Accept` headers of requests, and decoding of responses by their `Content-Type`.

use super::{Cause, List, Metadata, Status};
use evenkeel_api::{
    DecodeError, Encoding, View,
    list::{self, ListMeta},
    protobuf::Envelope,
    status as api,
};
use http::{HeaderMap, header};
use std::{any::TypeId, time::Duration};

pub(crate) const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf, application/json;q=0.9";
const PARTIAL_METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, \
    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json;q=0.9";
const PARTIAL_METADATA_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, \
    application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json;q=0.9";

/// Maximum size in bytes of a message that is taken from a body that is not a Status.
const MAX_MESSAGE_BYTES: usize = 512;

fn is_metadata<V: View>() -> bool {
    TypeId::of::<V>() == TypeId::of::<Metadata>()
}

/// Returns the `Accept` header for one object, or for a watch.
pub(crate) fn accept<V: View>() -> &'static str {
    if is_metadata::<V>() { PARTIAL_METADATA } else { accept_whole::<V>() }
}

/// Returns the `Accept` header for a list.
pub(crate) fn accept_list<V: View>() -> &'static str {
    if is_metadata::<V>() { PARTIAL_METADATA_LIST } else { accept_whole::<V>() }
}

/// Returns the `Accept` header for whole objects.
fn accept_whole<V: View>() -> &'static str {
    if V::PROTOBUF { PROTOBUF } else { JSON }
}

/// Returns an `Accept` header without its protobuf part, for a server that cannot encode the kind in protobuf.
pub(crate) fn without_protobuf(accept: &'static str) -> &'static str {
    accept
        .split_once(", ")
        .filter(|(first, _)| first.starts_with("application/vnd.kubernetes.protobuf"))
        .map_or(accept, |(_, rest)| rest)
}

/// Returns the encoding of a response by its `Content-Type`: protobuf, or JSON for any other.
pub(crate) fn response_encoding(headers: &HeaderMap) -> Encoding {
    let is_protobuf = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"));
    if is_protobuf { Encoding::Protobuf } else { Encoding::Json }
}

/// Returns the content and encoding of a response body, without protobuf's envelope.
fn open_envelope<'a>(
    headers: &HeaderMap,
    body: &'a [u8],
) -> Result<(&'a [u8], Encoding), DecodeError> {
    let encoding = response_encoding(headers);
    let raw = match encoding {
        Encoding::Json => body,
        Encoding::Protobuf => Envelope::open(body)?.raw,
    };
    Ok((raw, encoding))
}

/// Decodes the object of a response.
pub(crate) fn decode_object<V: View>(headers: &HeaderMap, body: &[u8]) -> Result<V, DecodeError> {
    let (raw, encoding) = open_envelope(headers, body)?;
    V::decode(raw, encoding)
}

/// Decodes the response to a deletion: the object, or a Status with its uid if the object no longer exists.
pub(crate) fn decode_deleted(headers: &HeaderMap, body: &[u8]) -> Result<Metadata, DecodeError> {
    let mut object: Metadata = decode_object(headers, body)?;
    if object.meta.name.is_empty() {
        let (raw, encoding) = open_envelope(headers, body)?;
        object.meta.uid = api::Status::decode(raw, encoding)?.details.uid;
    }
    Ok(object)
}

/// Decodes the list of a response. `List::skipped` lists the items that could not be decoded.
pub(crate) fn decode_list<V: View>(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<List<V>, DecodeError> {
    let (raw, encoding) = open_envelope(headers, body)?;
    List::decode(raw, encoding)
}

/// Calls `each` with the encoded bytes of every item of a list, and returns the list's metadata.
pub(crate) fn for_each_item(
    headers: &HeaderMap,
    body: &[u8],
    each: &mut dyn FnMut(&[u8], Encoding),
) -> Result<ListMeta, DecodeError> {
    let (raw, encoding) = open_envelope(headers, body)?;
    list::items(raw, encoding, &mut |item| each(item, encoding))
}

impl From<api::Status> for Status {
    fn from(wire: api::Status) -> Self {
        let to_cause = |cause: api::StatusCause| Cause {
            reason: cause.reason,
            message: cause.message,
            field: cause.field,
        };
        let seconds = u64::try_from(wire.details.retry_after_seconds).unwrap_or_default();
        Self {
            code: u16::try_from(wire.code).unwrap_or_default(),
            reason: wire.reason,
            message: wire.message,
            causes: wire.details.causes.into_iter().map(to_cause).collect(),
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
        }
    }
}

/// Decodes the Status of an error response. If the body is not a Status, for example a proxy's page, its first 512
/// bytes become the message.
pub(crate) fn decode_status(headers: &HeaderMap, code: u16, body: &[u8]) -> Status {
    let decoded =
        open_envelope(headers, body).and_then(|(raw, encoding)| api::Status::decode(raw, encoding));
    let mut status = match decoded {
        Ok(status) => Status::from(status),
        Err(_) => {
            let text = String::from_utf8_lossy(&body[..body.len().min(MAX_MESSAGE_BYTES)]);
            Status { message: text.trim().into(), ..Status::default() }
        }
    };
    status.code = code;
    status.retry_after = retry_after(headers).or(status.retry_after);
    status
}

/// Returns the `Retry-After` header if it is a number of seconds. The other form, a date, is ignored.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::protobuf::Transcoder;

    #[test]
    fn protobuf_and_json_responses_decode_to_the_same_status() {
        let protobuf = HeaderMap::from_iter([(
            header::CONTENT_TYPE,
            "application/vnd.kubernetes.protobuf".parse().unwrap(),
        )]);
        let text = r#"{"apiVersion":"v1","kind":"Status","reason":"Forbidden","message":"no","code":403,
            "details":{"causes":[{"reason":"NamespaceTerminating"}],"retryAfterSeconds":3}}"#;
        let body = Transcoder::encode_envelope(&serde_json::from_str(text).unwrap()).unwrap();
        let read = decode_status(&protobuf, 403, &body);
        assert_eq!(read, decode_status(&HeaderMap::new(), 403, text.as_bytes()));
        assert_eq!((read.code, &*read.reason, &*read.message), (403, "Forbidden", "no"));
        assert_eq!(&*read.causes[0].reason, "NamespaceTerminating");
        assert_eq!(read.retry_after, Some(Duration::from_secs(3)));
        assert!(decode_object::<Metadata>(&protobuf, text.as_bytes()).is_err(), "no envelope");
        assert!(decode_list::<Metadata>(&protobuf, text.as_bytes()).is_err(), "no envelope");
        assert!(decode_deleted(&protobuf, text.as_bytes()).is_err(), "no envelope");
    }

    #[test]
    fn a_list_with_one_bad_item_keeps_the_others() {
        let body = br#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},{"metadata":7}]}"#;
        let list: List<Metadata> = decode_list(&HeaderMap::new(), body).unwrap();
        assert_eq!(&*list.resource_version, "9");
        assert_eq!(list.items.len(), 1);
        assert_eq!(list.skipped.len(), 1);
    }

    #[test]
    fn null_items_are_an_empty_list() {
        let list: List<Metadata> =
            decode_list(&HeaderMap::new(), br#"{"metadata":{},"items":null}"#).unwrap();
        assert!(list.items.is_empty());
    }

    #[test]
    fn a_body_without_a_status_becomes_the_message() {
        let body = br#"{"kind":"Status","reason":"AlreadyExists","message":"pods \"a\" already exists","code":409}"#;
        let read = decode_status(&HeaderMap::new(), 409, body);
        assert_eq!((&*read.reason, read.code), ("AlreadyExists", 409));
        let page = decode_status(&HeaderMap::new(), 502, b"<html>bad gateway</html>\n");
        assert_eq!((&*page.message, page.code), ("<html>bad gateway</html>", 502));
    }

    #[test]
    fn retry_after_accepts_seconds_and_ignores_dates() {
        let headers =
            |text: &str| HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().unwrap())]);
        assert_eq!(retry_after(&headers("3")), Some(Duration::from_secs(3)));
        assert_eq!(retry_after(&headers("Wed, 21 Oct 2015 07:28:00 GMT")), None);
    }
}
