//! Encoding of responses in JSON, YAML or protobuf, as the object, a Table or PartialObjectMetadata.

mod encoder;
mod list_meta;
mod negotiation;
mod partial;
mod stored;
mod table;

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_api::DecodeError;
use evenkeel_api::protobuf::{Envelope, Transcoder};
use evenkeel_kinds::printers::{self, RowOrder};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use self::encoder::{Frame, ListEncoder};
pub(crate) use self::list_meta::ListMeta;
use self::negotiation::{
    Encoding, JSON, META, PROTOBUF, Shape, YAML, encodings, plain_encodings, shape, wants_pretty,
};
use self::partial::{partial, partial_value, version_of};
use self::stored::parse;
use self::table::Include;
use evenkeel_apimachinery::encode::{accept, pretty, protobuf_frame, yaml};

use crate::resource::ResourceType;
use evenkeel_apimachinery::status::StatusError;

/// Protobuf field number of the items in every kind of list.
pub(crate) const LIST_ITEMS: u32 = 2;

/// Kind of response, which limits the formats that a client may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Response with one object.
    Object,
    /// Response with a list.
    List,
    /// Stream of watch events.
    Watch,
}

/// Format of responses, negotiated once per request. Equal formats produce equal bytes, so each watch event is encoded
/// once per format.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Format {
    encoding: Encoding,
    shape: Shape,
    /// API version of a Table or PartialObjectMetadata: `meta.k8s.io/v1` or `v1beta1`, which have the same fields.
    meta_version: &'static str,
}

impl Format {
    /// Chooses a format by `Accept` and the query (`pretty`, `includeObject`). Returns a 406 if none fits. Later,
    /// [`Format::check`] checks the format against the kind of response.
    pub(crate) fn negotiate(
        resource: &ResourceType,
        subresource: &str,
        headers: &HeaderMap,
        query: &[(String, String)],
    ) -> Result<Self, StatusError> {
        let has_table = negotiation::has_table(resource, subresource);
        let is_pretty = wants_pretty(headers, query);
        for media_range in accept::media_ranges(headers) {
            for encoding in encodings(&media_range, is_pretty) {
                let found = shape(resource, has_table, &media_range, encoding, query);
                let Some((shape, meta_version)) = found else { continue };
                return Ok(Self { encoding, shape, meta_version });
            }
        }
        Err(StatusError::not_acceptable(&[JSON, YAML, PROTOBUF]))
    }

    /// Refuses PartialObjectMetadataList for one object, PartialObjectMetadata for a list, an invalid `includeObject`,
    /// and a watch in YAML. Upstream checks this after it has read the objects.
    ///
    /// Upstream: `transformResponseObject`.
    pub(crate) fn check(
        &self,
        resource: &ResourceType,
        subresource: &str,
        query: &[(String, String)],
        purpose: Purpose,
    ) -> Result<(), StatusError> {
        // Messages contain the Go type of the list, such as `*core.PodList`.
        let package = match (&resource.custom, resource.group()) {
            (Some(_), _) => "unstructured",
            (None, "" | "events.k8s.io") => "core",
            (None, group) => group.split('.').next().unwrap_or_default(),
        };
        let list_kind = match &resource.custom {
            Some(_) => "UnstructuredList",
            None => &resource.list_kind,
        };
        if purpose == Purpose::Watch && self.encoding == Encoding::Yaml {
            return Err(StatusError::not_acceptable(&WATCH_MEDIA_TYPES));
        }
        let message = match (self.shape, purpose) {
            (Shape::Table(Include::Unknown), _) => {
                let parameter = query.iter().find(|(name, _)| name == "includeObject");
                let value = parameter.map_or("", |(_, value)| value);
                return Err(StatusError::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {value:?}: must be 'Metadata', \
                     'Object', 'None', or empty"
                )));
            }
            (Shape::Metadata, Purpose::List) => format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{package}.{list_kind})"
            ),
            (Shape::MetadataList, Purpose::Object) => {
                let kind = match (&resource.custom, subresource) {
                    (Some(_), "scale") => "v1.Scale".to_owned(),
                    (Some(_), _) => {
                        return Err(StatusError::plain_internal("content is not a list"));
                    }
                    (None, "scale") => "autoscaling.Scale".to_owned(),
                    (None, _) => format!("{package}.{}", resource.kind()),
                };
                format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list (*{kind})"
                )
            }
            _ => return Ok(()),
        };
        Err(StatusError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message))
    }

    /// Returns whether the response is the metadata of a list, which no single object has.
    pub(crate) fn is_metadata_list(&self) -> bool {
        self.shape == Shape::MetadataList
    }

    /// Returns whether the response is the stored object: compact JSON in the stored version, without encoding.
    pub(crate) fn is_stored_form(&self, resource: &ResourceType) -> bool {
        resource.stored && self.encoding == Encoding::Json && self.shape == Shape::Whole
    }

    /// Returns whether the response is an object in protobuf and in the stored version, or its metadata, as
    /// [`message`](Self::message) encodes them.
    pub(crate) fn is_stored_protobuf(&self, resource: &ResourceType) -> bool {
        resource.stored
            && self.encoding == Encoding::Protobuf
            && (self.shape == Shape::Whole
                || self.is_metadata()
                    && Transcoder::supports(&resource.api_version, resource.kind()))
    }

    /// Encodes an object from its stored JSON as a protobuf message, without an envelope.
    ///
    /// # Errors
    /// Returns a 406 for a kind without protobuf, or a field of a wrong type.
    pub(crate) fn message(resource: &ResourceType, json: &[u8]) -> Result<Vec<u8>, StatusError> {
        Self::message_of(resource, &parse(json)?)
    }

    /// Encodes an object in its stored version as a protobuf message, like [`message`](Self::message).
    ///
    /// # Errors
    /// Fails with the errors of `message`.
    pub(crate) fn message_of(
        resource: &ResourceType,
        object: &Value,
    ) -> Result<Vec<u8>, StatusError> {
        Transcoder::encode(&resource.api_version, resource.kind(), object).map_err(not_acceptable)
    }

    /// Returns the `Content-Type` of a response or of a stream of events.
    pub(crate) fn content_type(&self, purpose: Purpose) -> HeaderValue {
        HeaderValue::from_static(match (self.encoding, purpose) {
            (Encoding::Json | Encoding::Pretty, _) => JSON,
            (Encoding::Yaml, _) => YAML,
            (Encoding::Protobuf, Purpose::Watch) => {
                "application/vnd.kubernetes.protobuf;stream=watch"
            }
            (Encoding::Protobuf, _) => PROTOBUF,
        })
    }

    /// Encodes one object from compact JSON in the stored version of `resource`. Ages in a Table are relative to `now`.
    pub(crate) fn object(
        &self,
        resource: &ResourceType,
        stored: &[u8],
        now: Timestamp,
    ) -> Result<Bytes, StatusError> {
        if self.encoding == Encoding::Json && self.is_metadata() {
            let mut out = Vec::new();
            partial(self.meta_version, stored, &mut out)?;
            out.push(b'\n');
            return Ok(out.into());
        }
        self.encode(&self.shaped(resource, stored, now)?)
    }

    /// Encodes a list as a whole. Like the object in [`object`](Self::object), each item is compact JSON in the stored
    /// version.
    pub(crate) fn list(
        &self,
        resource: &Arc<ResourceType>,
        items: &[Bytes],
        meta: &ListMeta,
        now: Timestamp,
    ) -> Result<Bytes, StatusError> {
        let mut objects = items.iter().cloned();
        let mut encoder = ListEncoder::new(self, resource, &mut objects, meta, now)?;
        let Frame { head: mut out, separator, tail } = encoder.take_frame();
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(separator);
            }
            encoder.item(item, &mut out)?;
        }
        out.extend_from_slice(&tail);
        Ok(out.into())
    }

    /// Returns the order of a Table's rows, if it is not that of the list.
    pub(crate) fn row_order(&self, resource: &ResourceType) -> Option<RowOrder> {
        let is_table = matches!(self.shape, Shape::Table(_));
        is_table.then(|| printers::row_order(resource.group(), resource.kind())).flatten()
    }

    /// Returns kind and apiVersion of a list of objects or of their metadata.
    fn list_type<'r>(&self, resource: &'r ResourceType) -> (&'r str, &'r str) {
        match self.shape {
            Shape::Metadata | Shape::MetadataList => {
                ("PartialObjectMetadataList", self.meta_version)
            }
            _ => (&resource.list_kind, &resource.api_version),
        }
    }

    /// Returns the head and the tail of a protobuf list of stored objects. Each item between them is a field with the
    /// number [`LIST_ITEMS`]; `size` is the sum of these fields' sizes in bytes.
    ///
    /// # Errors
    /// Returns a 406 for a kind without protobuf.
    pub(crate) fn protobuf_list_head_and_tail(
        resource: &ResourceType,
        meta: &ListMeta,
        size: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), StatusError> {
        let (list_kind, version) = (&*resource.list_kind, &*resource.api_version);
        let head = json!({"metadata": meta.to_json_for(resource)});
        let list = Transcoder::encode(version, list_kind, &head).map_err(not_acceptable)?;
        Ok(Envelope::around(version, list_kind, &list, size))
    }

    /// Encodes one watch event with its frame. `event` is `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` (`object` has only
    /// kind, resourceVersion and annotations) or `ERROR` (`object` is a Status). `is_first` marks the first event of a
    /// stream: only its Table has the column definitions.
    pub(crate) fn event(
        &self,
        resource: &ResourceType,
        event: &str,
        object: &[u8],
        is_first: bool,
        now: Timestamp,
    ) -> Result<Bytes, StatusError> {
        // A bookmark is not converted, because its object has no fields that a schema describes.
        let is_custom_bookmark = event == "BOOKMARK" && resource.custom.is_some();
        let shaped = || -> Result<Value, StatusError> {
            match self.shape {
                _ if event == "ERROR" => parse(object),
                Shape::Whole if is_custom_bookmark => parse(object),
                Shape::Table(include) => {
                    let rows =
                        [table::one_row(resource, self.meta_version, include, parse(object)?, now)];
                    let meta = json!({"resourceVersion": version_of(object)});
                    Ok(table::table(resource, self.meta_version, "", &rows, &meta, is_first))
                }
                _ => self.shaped(resource, object, now),
            }
        };
        if self.encoding == Encoding::Protobuf {
            let inner = self.encode(&shaped()?)?;
            return Ok(protobuf_frame::event(event, &inner));
        }
        let mut out = Vec::with_capacity(object.len() + 32);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(event.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        match self.shape {
            _ if event == "ERROR" => out.extend_from_slice(object),
            Shape::Whole if resource.stored || is_custom_bookmark => out.extend_from_slice(object),
            Shape::Metadata | Shape::MetadataList => partial(self.meta_version, object, &mut out)?,
            _ => serde_json::to_writer(&mut out, &shaped()?).map_err(StatusError::internal)?,
        }
        out.extend_from_slice(b"}\n");
        Ok(out.into())
    }

    /// Encodes an object, or its metadata, from a protobuf message of [`message`](Self::message).
    ///
    /// # Errors
    /// Returns a 500 if the message is not an object's.
    pub(crate) fn message_object(
        &self,
        resource: &ResourceType,
        message: &[u8],
    ) -> Result<Vec<u8>, StatusError> {
        if self.is_metadata() {
            let metadata =
                Transcoder::partial_object_metadata(message).map_err(StatusError::internal)?;
            return Ok(Envelope::seal(self.meta_version, partial::KIND, &metadata));
        }
        Ok(Envelope::seal(&resource.api_version, resource.kind(), message))
    }

    /// Encodes one watch event from a protobuf message, as [`message_object`](Self::message_object) does.
    ///
    /// # Errors
    /// Fails with the errors of `message_object`.
    pub(crate) fn message_event(
        &self,
        resource: &ResourceType,
        event: &str,
        message: &[u8],
    ) -> Result<Bytes, StatusError> {
        Ok(protobuf_frame::event(event, &self.message_object(resource, message)?))
    }

    /// Encodes a Status for an error or a successful deletion; `status` is JSON. A client that accepts none of the
    /// media types gets indented JSON.
    ///
    /// Upstream: `ErrorNegotiated`, `WriteRawJSON`.
    pub(crate) fn status(
        headers: &HeaderMap,
        query: &[(String, String)],
        status: &[u8],
    ) -> (HeaderValue, Bytes) {
        let encoding = plain_encodings(headers, query).next().unwrap_or(Encoding::Pretty);
        let format = Self { encoding, shape: Shape::Whole, meta_version: META };
        let bytes = match format.encoding {
            Encoding::Json => None,
            _ => parse(status).and_then(|value| format.encode(&value)).ok(),
        };
        match bytes {
            Some(bytes) => (format.content_type(Purpose::Object), bytes),
            None => (HeaderValue::from_static(JSON), [status, b"\n"].concat().into()),
        }
    }

    /// Encodes a document of the server, such as a discovery document. Returns `None` if the client accepts none of its
    /// media types.
    pub(crate) fn document(
        headers: &HeaderMap,
        query: &[(String, String)],
        document: &Value,
    ) -> Option<(HeaderValue, Bytes)> {
        plain_encodings(headers, query).find_map(|encoding| {
            let format = Self { encoding, shape: Shape::Whole, meta_version: META };
            let bytes = format.encode(document).ok()?;
            Some((format.content_type(Purpose::Object), bytes))
        })
    }

    /// Returns whether the response contains only the metadata of objects.
    pub(crate) fn is_metadata(&self) -> bool {
        matches!(self.shape, Shape::Metadata | Shape::MetadataList)
    }

    /// Decodes an object and converts it from the stored version to the requested version and shape.
    fn shaped(
        &self,
        resource: &ResourceType,
        stored: &[u8],
        now: Timestamp,
    ) -> Result<Value, StatusError> {
        match self.shape {
            Shape::Metadata | Shape::MetadataList => partial_value(self.meta_version, stored),
            Shape::Table(include) => {
                let object = parse(stored)?;
                let meta = object.pointer("/metadata/resourceVersion").cloned();
                let meta =
                    meta.map_or_else(|| json!({}), |version| json!({"resourceVersion": version}));
                let subresource = subresource_of(resource, &object);
                let row = if subresource.is_empty() {
                    table::one_row(resource, self.meta_version, include, object, now)
                } else {
                    table::scale_row(self.meta_version, include, object, now)
                };
                Ok(table::table(resource, self.meta_version, subresource, &[row], &meta, true))
            }
            Shape::Whole => {
                let mut object = parse(stored)?;
                // Other kinds, such as Scale or Status, have only one version.
                let is_own_kind =
                    object.get("kind").and_then(Value::as_str) == Some(resource.kind());
                if !resource.stored && is_own_kind {
                    resource.strategy.convert_out(&resource.gvk, &mut object);
                }
                Ok(object)
            }
        }
    }

    /// Encodes a JSON value in the format's encoding, with a newline after JSON.
    fn encode(&self, value: &Value) -> Result<Bytes, StatusError> {
        match self.encoding {
            Encoding::Json => {
                let mut bytes = serde_json::to_vec(value).map_err(StatusError::internal)?;
                bytes.push(b'\n');
                Ok(bytes.into())
            }
            Encoding::Pretty => Ok(pretty::json(value).into()),
            Encoding::Yaml => Ok(yaml::document(value).into()),
            Encoding::Protobuf => {
                Transcoder::encode_envelope(value).map(Bytes::from).map_err(not_acceptable)
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes a value")]
fn not_acceptable(error: DecodeError) -> StatusError {
    StatusError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", error.to_string())
}

/// Returns the subresource that an object's kind belongs to: `scale` or none.
fn subresource_of(resource: &ResourceType, object: &Value) -> &'static str {
    match object.get("kind").and_then(Value::as_str) {
        Some("Scale") if resource.kind() != "Scale" => "scale",
        _ => "",
    }
}

/// Removes `kind` and `apiVersion`, which the items of a list of built-in objects do not have.
fn remove_type_meta(item: &mut Value) {
    if let Some(fields) = item.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
}

/// Media types of watch streams, for the error of a client that requests another one.
const WATCH_MEDIA_TYPES: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Table;

    #[test]
    fn an_object_of_a_protobuf_message_equals_one_of_json() {
        let table = Table::builtin();
        let pods = table.get("v1", "pods").expect("pods are built in");
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"a": "b"}, "resourceVersion": "7",
            "managedFields": [{"manager": "m", "fieldsV1": {"f:metadata": {}}}]}, "spec": {"nodeName": "n"}})
        .to_string();
        let message = Format::message(&pods, pod.as_bytes()).expect("a message");
        for shape in [Shape::Whole, Shape::Metadata] {
            let format = Format { encoding: Encoding::Protobuf, shape, meta_version: META };
            assert!(format.is_stored_protobuf(&pods));
            let of_json =
                format.object(&pods, pod.as_bytes(), Timestamp::UNIX_EPOCH).expect("encoded");
            assert_eq!(
                format.message_object(&pods, &message).expect("sealed"),
                of_json,
                "{shape:?}"
            );
        }
    }

    #[test]
    fn a_protobuf_list_encoded_item_by_item_equals_the_whole() {
        let table = Table::builtin();
        let pods = table.get("v1", "pods").expect("pods are built in");
        let pod = |name: &str| {
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": {"a": name}, "resourceVersion": "7"},
                "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}})
        };
        let meta = ListMeta {
            resource_version: 9,
            token: "more".to_owned(),
            remaining: Some(3),
            ..ListMeta::default()
        };
        let names = ["a", "b", &"long".repeat(50)];
        for shape in [Shape::Whole, Shape::MetadataList] {
            let format = Format { encoding: Encoding::Protobuf, shape, meta_version: META };
            for n in 0..=names.len() {
                let pods_of =
                    |names: &[&str]| names.iter().map(|name| pod(name)).collect::<Vec<_>>();
                let items = pods_of(&names[..n]);
                let bytes: Vec<Bytes> = items.iter().map(|item| item.to_string().into()).collect();
                let now = Timestamp::UNIX_EPOCH;
                let list = format.list(&pods, &bytes, &meta, now).expect("a list");
                let (kind, version, items) = match shape {
                    Shape::MetadataList => {
                        let partial =
                            |item: &Value| partial_value(META, item.to_string().as_bytes());
                        let all = items.iter().map(partial).collect::<Result<_, _>>();
                        ("PartialObjectMetadataList", META, all.expect("metadata"))
                    }
                    _ => ("PodList", "v1", items),
                };
                let whole = json!({"kind": kind, "apiVersion": version, "metadata": meta.to_json(), "items": items});
                let whole = Transcoder::encode_envelope(&whole).expect("encoded");
                assert_eq!(list, whole, "{shape:?} of {n}");
            }
        }
    }
}
