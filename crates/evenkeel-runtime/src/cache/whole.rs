//! JSON of whole objects, split into metadata and body, so that neither is decoded or stored twice.
//!
//! `metadata.managedFields` are skipped: they are often larger than the rest, and controllers do not read them.

use super::Dynamic;
use evenkeel_api::{DecodeError, Encoding, Meta, OwnerReference, StrMap, Text, View, json};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as api, ObjectMeta, Time};
use kube::{Resource, api::DynamicObject};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Deserializer, value::RawValue};
use smallvec::SmallVec;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::{self, Display},
};

/// View of whole objects.
pub(crate) trait WholeObject: View {
    /// Returns the type that all objects have, or `None` if they differ.
    fn type_meta() -> Option<TypeMeta>;

    /// Decodes an object from its body. `metadata` and `meta` are equal, except for fields that [`Meta`] lacks.
    fn from_body(body: &[u8], metadata: ObjectMeta, meta: Meta) -> Result<Self, DecodeError>;
}

impl WholeObject for Dynamic {
    fn type_meta() -> Option<TypeMeta> {
        None
    }

    fn from_body(body: &[u8], metadata: ObjectMeta, _: Meta) -> Result<Self, DecodeError> {
        let object: DynamicObject = decode_body("object", body)?;
        Ok(Self::new(DynamicObject { metadata, ..object }))
    }
}

/// `apiVersion` and `kind` of objects.
pub(crate) struct TypeMeta {
    pub(super) api_version: Cow<'static, str>,
    pub(super) kind: Cow<'static, str>,
}

/// Returns the beginning of each object's JSON after [`Parts::of`]: the type, if all objects have the same one, and empty
/// metadata.
pub(super) fn head(type_meta: Option<&TypeMeta>) -> Vec<u8> {
    let Some(TypeMeta { api_version, kind }) = type_meta else {
        return br#"{"metadata":{}"#.to_vec();
    };
    // Neither has characters that need an escape.
    format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{}}"#).into_bytes()
}

/// Whole object, taken apart.
pub(super) struct Parts {
    /// Metadata without `managedFields`.
    pub(super) metadata: ObjectMeta,
    /// JSON of the object. It begins with the head and has no metadata, unless `tail` is zero.
    pub(super) body: Vec<u8>,
    /// Index in the body after the head. Zero if the object has no metadata or another type; the body then has all fields.
    pub(super) tail: usize,
}

impl Parts {
    /// Splits an object, which is possible only in JSON. `kind` is its kind in errors, and `type_meta` the type of all objects.
    pub(super) fn of(
        kind: &str,
        type_meta: Option<&TypeMeta>,
        bytes: &[u8],
        encoding: Encoding,
    ) -> Result<Self, DecodeError> {
        match encoding {
            Encoding::Json => {
                Self::read(type_meta, bytes).map_err(|error| decode_error(kind, &error))
            }
            Encoding::Protobuf => Err(decode_error(kind, &"whole objects are read from JSON only")),
        }
    }

    fn read(type_meta: Option<&TypeMeta>, bytes: &[u8]) -> Result<Self, serde_json::Error> {
        if let Some(usual) = type_meta.and_then(|type_meta| Self::read_usual(type_meta, bytes)) {
            return Ok(usual);
        }
        let Fields(mut fields) = serde_json::from_slice(bytes)?;
        let mut metadata = None;
        for (_, value) in fields.iter().filter(|(name, _)| name == "metadata") {
            metadata = serde_json::from_str::<Option<Metadata>>(value.get())?.map(ObjectMeta::from);
        }
        let known_type = |name: &str| match (name, type_meta) {
            ("apiVersion", Some(known)) => Some(&*known.api_version),
            ("kind", Some(known)) => Some(&*known.kind),
            _ => None,
        };
        let is_of_type = |(name, value): &RawField<'_>| {
            known_type(name).is_none_or(|known| is_string(value, known))
        };
        let Some(metadata) = metadata else {
            // The type decides whether it needs metadata.
            return Ok(Self { metadata: ObjectMeta::default(), body: bytes.to_vec(), tail: 0 });
        };
        let has_type = fields.iter().all(is_of_type);
        fields.retain(|(name, _)| name != "metadata" && !(has_type && known_type(name).is_some()));
        let start = head(type_meta.filter(|_| has_type));
        let mut parts = Self { metadata, body: encode_fields(&start, &fields)?, tail: start.len() };
        if !has_type {
            (parts.body, parts.tail) = (parts.encode()?, 0);
        }
        Ok(parts)
    }

    /// Splits an object of the type that begins as the server writes it: with its type and its metadata. The rest is not read,
    /// but decoded as part of the body. Returns `None` for any other object, and on an error.
    fn read_usual(type_meta: &TypeMeta, bytes: &[u8]) -> Option<Self> {
        let rest = after_type(type_meta, bytes)?;
        let mut values = Deserializer::from_slice(rest).into_iter();
        let metadata: Metadata = values.next()?.ok()?;
        let tail = rest.get(values.byte_offset()..)?.trim_ascii_end();
        if !matches!(tail.first(), Some(b',' | b'}')) {
            return None;
        }
        let head = head(Some(type_meta));
        let body = [&*head, tail].concat();
        Some(Self { metadata: metadata.into(), body, tail: head.len() })
    }

    /// Returns the JSON of the object with its metadata. `kind` is its kind in errors.
    pub(super) fn whole(&self, kind: &str) -> Result<Vec<u8>, DecodeError> {
        self.encode().map_err(|error| decode_error(kind, &error))
    }

    fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let (head, tail) = self.body.split_at(self.tail);
        let Some(head) = head.strip_suffix(b"{}") else { return Ok(self.body.clone()) };
        Ok([head, &*serde_json::to_vec(&self.metadata)?, tail].concat())
    }
}

/// Returns the JSON of an object from the value of its metadata on, if only its type precedes the metadata.
fn after_type<'a>(type_meta: &TypeMeta, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let TypeMeta { api_version, kind } = type_meta;
    let field = |bytes: &'a [u8], name: &str, value: &str| {
        let rest = bytes.strip_prefix(b"\"")?.strip_prefix(name.as_bytes())?;
        let rest = rest.strip_prefix(b"\":\"")?.strip_prefix(value.as_bytes())?;
        rest.strip_prefix(b"\",")
    };
    let bytes = bytes.strip_prefix(b"{")?;
    // Fields of custom resources are sorted by name; fields of other objects have the order of their Go types.
    let rest = match field(bytes, "kind", kind) {
        Some(rest) => field(rest, "apiVersion", api_version)?,
        None => field(field(bytes, "apiVersion", api_version)?, "kind", kind)?,
    };
    rest.strip_prefix(b"\"metadata\":")
}

/// Encodes an object that begins with `start`.
fn encode_fields(start: &[u8], fields: &[RawField<'_>]) -> Result<Vec<u8>, serde_json::Error> {
    let length = |(name, value): &RawField<'_>| name.len() + value.get().len() + 4;
    let mut body = Vec::with_capacity(start.len() + fields.iter().map(length).sum::<usize>() + 1);
    body.extend_from_slice(start);
    for (name, value) in fields {
        body.push(b',');
        serde_json::to_writer(&mut body, &**name)?;
        body.push(b':');
        body.extend_from_slice(value.get().as_bytes());
    }
    body.push(b'}');
    Ok(body)
}

/// Returns whether a JSON value is this string, written without escapes.
fn is_string(value: &RawValue, text: &str) -> bool {
    value.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) == Some(text)
}

/// Decodes the body of an object. `kind` is its kind in errors.
pub(super) fn decode_body<T: DeserializeOwned>(kind: &str, body: &[u8]) -> Result<T, DecodeError> {
    json::from_slice(body).map_err(|error| decode_error(kind, &error))
}

fn decode_error(kind: &str, reason: &dyn Display) -> DecodeError {
    DecodeError { kind: kind.into(), field: ".".into(), reason: reason.to_string().into() }
}

/// Name of a field, and its value, not decoded.
type RawField<'a> = (Cow<'a, str>, &'a RawValue);

/// Fields of an object.
struct Fields<'a>(SmallVec<[RawField<'a>; 8]>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor).map(Fields)
    }
}

struct FieldsVisitor;

/// Name of a field, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = SmallVec<[RawField<'de>; 8]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = SmallVec::new();
        while let Some((Name(name), value)) = map.next_entry()? {
            fields.push((name, value));
        }
        Ok(fields)
    }
}

/// [`ObjectMeta`] without `managedFields`, which are skipped.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generate_name: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<api::OwnerReference>>,
    resource_version: Option<String>,
    self_link: Option<String>,
    uid: Option<String>,
    #[serde(rename = "managedFields")]
    _managed_fields: Option<IgnoredAny>,
}

impl From<Metadata> for ObjectMeta {
    fn from(from: Metadata) -> Self {
        Self {
            annotations: from.annotations,
            creation_timestamp: from.creation_timestamp,
            deletion_grace_period_seconds: from.deletion_grace_period_seconds,
            deletion_timestamp: from.deletion_timestamp,
            finalizers: from.finalizers,
            generate_name: from.generate_name,
            generation: from.generation,
            labels: from.labels,
            managed_fields: None,
            name: from.name,
            namespace: from.namespace,
            owner_references: from.owner_references,
            resource_version: from.resource_version,
            self_link: from.self_link,
            uid: from.uid,
        }
    }
}

/// Returns whether [`to_object_meta`] restores these metadata: whether no field is one that [`Meta`] lacks, or is present
/// but empty. The server writes neither.
pub(super) fn is_restorable(metadata: &ObjectMeta) -> bool {
    let ObjectMeta {
        annotations,
        creation_timestamp: _,
        deletion_grace_period_seconds: _,
        deletion_timestamp: _,
        finalizers,
        generate_name,
        generation,
        labels,
        managed_fields,
        name,
        namespace,
        owner_references,
        resource_version,
        self_link,
        uid,
    } = metadata;
    let is_restored = |flag: Option<bool>| flag != Some(false);
    let texts = [generate_name, name, namespace, resource_version, uid];
    managed_fields.is_none()
        && self_link.is_none()
        && *generation != Some(0)
        && texts.iter().all(|text| text.as_ref().is_none_or(|text| !text.is_empty()))
        && [annotations, labels].iter().all(|map| map.as_ref().is_none_or(|map| !map.is_empty()))
        && finalizers.as_ref().is_none_or(|list| !list.is_empty())
        && owner_references.as_ref().is_none_or(|list| !list.is_empty())
        && owner_references
            .iter()
            .flatten()
            .all(|owner| is_restored(owner.controller) && is_restored(owner.block_owner_deletion))
}

/// Returns the fields of the metadata that [`Meta`] has. Equal values of objects that are converted in succession share
/// their memory.
pub(super) fn to_meta(from: &ObjectMeta) -> Meta {
    let text = |text: &Option<String>| Text::interned(text.as_deref().unwrap_or_default());
    let meta = Meta {
        name: text(&from.name),
        generate_name: text(&from.generate_name),
        namespace: text(&from.namespace),
        uid: text(&from.uid),
        resource_version: text(&from.resource_version),
        generation: from.generation.unwrap_or_default(),
        creation: from.creation_timestamp.as_ref().map(|time| time.0),
        deletion: from.deletion_timestamp.as_ref().map(|time| time.0),
        deletion_grace_seconds: from.deletion_grace_period_seconds,
        labels: to_str_map(from.labels.as_ref()),
        annotations: to_str_map(from.annotations.as_ref()),
        owners: from.owner_references.iter().flatten().map(to_owner).collect(),
        finalizers: from.finalizers.iter().flatten().map(|name| Text::interned(name)).collect(),
    };
    meta.interned()
}

fn to_str_map(map: Option<&BTreeMap<String, String>>) -> StrMap {
    let entries = map.into_iter().flatten();
    entries.map(|(key, value)| (Text::interned(key), Text::interned(value))).collect()
}

fn to_owner(from: &api::OwnerReference) -> OwnerReference {
    OwnerReference {
        api_version: Text::interned(&from.api_version),
        kind: Text::interned(&from.kind),
        name: Text::interned(&from.name),
        uid: Text::interned(&from.uid),
        controller: from.controller.unwrap_or_default(),
        block_owner_deletion: from.block_owner_deletion.unwrap_or_default(),
    }
}

/// Returns the metadata that [`to_meta`] was called with, if they are [restorable](is_restorable).
pub(super) fn to_object_meta(meta: &Meta) -> ObjectMeta {
    let text = |text: &Text| (!text.is_empty()).then(|| text.to_string());
    let map = |map: &StrMap| {
        let entries = || map.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        (!map.is_empty()).then(|| entries().collect())
    };
    let (owners, finalizers) = (&meta.owners, &meta.finalizers);
    ObjectMeta {
        annotations: map(&meta.annotations),
        creation_timestamp: meta.creation.map(Time),
        deletion_grace_period_seconds: meta.deletion_grace_seconds,
        deletion_timestamp: meta.deletion.map(Time),
        finalizers: (!finalizers.is_empty())
            .then(|| finalizers.iter().map(Text::to_string).collect()),
        generate_name: text(&meta.generate_name),
        generation: (meta.generation != 0).then_some(meta.generation),
        labels: map(&meta.labels),
        managed_fields: None,
        name: text(&meta.name),
        namespace: text(&meta.namespace),
        owner_references: (!owners.is_empty())
            .then(|| owners.iter().map(to_owner_reference).collect()),
        resource_version: text(&meta.resource_version),
        self_link: None,
        uid: text(&meta.uid),
    }
}

fn to_owner_reference(owner: &OwnerReference) -> api::OwnerReference {
    api::OwnerReference {
        api_version: owner.api_version.to_string(),
        block_owner_deletion: owner.block_owner_deletion.then_some(true),
        controller: owner.controller.then_some(true),
        kind: owner.kind.to_string(),
        name: owner.name.to_string(),
        uid: owner.uid.to_string(),
    }
}

/// Decodes a whole object, which is possible only from JSON. `kind` is its kind in errors.
pub(super) fn decode_whole<T: Resource + DeserializeOwned>(
    kind: &str,
    bytes: &[u8],
    encoding: Encoding,
) -> Result<T, DecodeError> {
    let Parts { metadata, body, .. } = Parts::of(kind, None, bytes, encoding)?;
    let mut object: T = decode_body(kind, &body)?;
    *object.meta_mut() = metadata;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Full;
    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::{option, prelude::*};
    use serde_json::{Value, json};

    fn parts(json: &[u8]) -> Result<Parts, DecodeError> {
        let type_meta = Full::<ConfigMap>::type_meta();
        Parts::of("ConfigMap", type_meta.as_ref(), json, Encoding::Json)
    }

    #[test]
    fn the_body_begins_with_the_type_and_empty_metadata() {
        let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}"#;
        let table = [
            (
                r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","managedFields":[{"a":{}}]},"data":{"metadata":"m"}}"#,
                r#","data":{"metadata":"m"}}"#,
            ),
            // Items of a list have no type.
            (r#"{"metadata":{},"da\"ta" : 1 , "b":[ 2 ]}"#, r#","da\"ta":1,"b":[ 2 ]}"#),
        ];
        for (json, wanted) in table {
            let Parts { body, tail, .. } = parts(json.as_bytes()).unwrap();
            let (begin, rest) = std::str::from_utf8(&body).unwrap().split_at(tail);
            assert_eq!((begin, rest), (head, wanted), "{json}");
        }
        let dynamic = br#"{"kind":"Web","metadata":{"name":"x"}}"#;
        let Parts { metadata, body, tail } =
            Parts::of("object", None, dynamic, Encoding::Json).unwrap();
        assert_eq!(metadata.name.as_deref(), Some("x"));
        assert_eq!(std::str::from_utf8(&body[..tail]), Ok(r#"{"metadata":{}"#));
        assert_eq!(std::str::from_utf8(&body[tail..]), Ok(r#","kind":"Web"}"#));
    }

    #[test]
    fn an_object_as_the_server_writes_it_is_taken_apart_alike() {
        let type_meta = Full::<ConfigMap>::type_meta().unwrap();
        let metadata = r#"{"name":"x","managedFields":[{"a":"}"}],"generation":2}"#;
        let types =
            [r#""kind":"ConfigMap","apiVersion":"v1""#, r#""apiVersion":"v1","kind":"ConfigMap""#];
        for (types, tail) in types.iter().flat_map(|types| {
            [r#","data":{"metadata":"m"},"immutable":true}"#, "}"].map(|tail| (types, tail))
        }) {
            let json = format!(r#"{{{types},"metadata":{metadata}{tail}"#);
            let usual = Parts::read_usual(&type_meta, format!("{json}\n").as_bytes()).unwrap();
            assert_eq!(std::str::from_utf8(&usual.body[usual.tail..]), Ok(tail), "{json}");
            // The same object, written unusually.
            let spaced = parts(format!(" {json}").as_bytes()).unwrap();
            assert_eq!((usual.metadata, usual.body), (spaced.metadata, spaced.body), "{json}");
        }
        let table = [
            r#"{"kind":"Secret","apiVersion":"v1","metadata":{}}"#,
            r#"{"kind":"ConfigMap","metadata":{}}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","data":{},"metadata":{}}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":null}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":7}}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{}]"#,
        ];
        for json in table {
            assert!(Parts::read_usual(&type_meta, json.as_bytes()).is_none(), "{json}");
        }
    }

    #[test]
    fn what_is_unusual_is_left_to_the_type() {
        let table = [
            (
                r#"{"kind":"Secret","metadata":{"name":"x","managedFields":[]}}"#,
                r#"{"metadata":{"name":"x"},"kind":"Secret"}"#,
            ),
            (r#"{"metadata":null}"#, r#"{"metadata":null}"#),
            ("{}", "{}"),
        ];
        for (json, wanted) in table {
            let Parts { body, tail, .. } = parts(json.as_bytes()).unwrap();
            assert_eq!((std::str::from_utf8(&body), tail), (Ok(wanted), 0), "{json}");
        }
    }

    #[test]
    fn the_whole_has_its_metadata_without_managed_fields() {
        let json = br#"{"data":{"k":"v"},"metadata":{"selfLink":"/s","labels":{},"managedFields":[{"manager":"m"}]}}"#;
        let whole = parts(json).unwrap().encode().unwrap();
        let wanted = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {}, "selfLink": "/s"}, "data": {"k": "v"},
        });
        assert_eq!(serde_json::from_slice::<Value>(&whole).unwrap(), wanted);
        assert_eq!(parts(b"{}").unwrap().encode().unwrap(), b"{}");
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for json in ["[]", "{", "{}x", r#"{"metadata":7}"#, r#"{"metadata":{"name":7}}"#] {
            assert!(parts(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn metadata_as_the_server_writes_them_are_restorable() {
        let metadata: ObjectMeta = serde_json::from_value(json!({
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"l": "1"}, "annotations": {"a": ""},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "v", "controller": true}],
            "finalizers": ["example.com/f"],
        }))
        .unwrap();
        assert!(is_restorable(&metadata));
        assert_eq!(to_object_meta(&to_meta(&metadata)), metadata);
    }

    fn text() -> impl Strategy<Value = Option<String>> {
        option::of("[a-z]{0,2}")
    }

    fn map() -> impl Strategy<Value = Option<BTreeMap<String, String>>> {
        option::of(proptest::collection::btree_map("[a-z]{0,2}", "[a-z]{0,20}", 0..3))
    }

    fn owner() -> impl Strategy<Value = api::OwnerReference> {
        (any::<[Option<bool>; 2]>(), "[a-z]{0,30}").prop_map(|(flags, name)| api::OwnerReference {
            api_version: "v1".to_owned(),
            block_owner_deletion: flags[0],
            controller: flags[1],
            kind: "Pod".to_owned(),
            uid: name.clone(),
            name,
        })
    }

    fn metadata() -> impl Strategy<Value = ObjectMeta> {
        let numbers = (option::of(0_i64..2), option::of(0_i64..2));
        let times = [(); 2].map(|()| option::of(0_i64..9));
        let lists = (
            option::of(proptest::collection::vec("[a-z]{1,20}", 0..2)),
            option::of(proptest::collection::vec(owner(), 0..2)),
        );
        let texts = [(); 6].map(|()| text());
        (texts, [map(), map()], numbers, times, lists).prop_map(
            |(texts, maps, (generation, grace), times, (finalizers, owner_references))| {
                let [name, namespace, uid, resource_version, generate_name, self_link] = texts;
                let [labels, annotations] = maps;
                let [creation_timestamp, deletion_timestamp] = times.map(|time| {
                    time.and_then(|time| Some(Time(jiff::Timestamp::from_second(time).ok()?)))
                });
                ObjectMeta {
                    annotations,
                    creation_timestamp,
                    deletion_grace_period_seconds: grace,
                    deletion_timestamp,
                    finalizers,
                    generate_name,
                    generation,
                    labels,
                    managed_fields: None,
                    name,
                    namespace,
                    owner_references,
                    resource_version,
                    self_link,
                    uid,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn restorable_metadata_are_restored(metadata in metadata()) {
            let restored = to_object_meta(&to_meta(&metadata));
            prop_assert_eq!(is_restorable(&metadata), restored == metadata);
        }
    }
}
