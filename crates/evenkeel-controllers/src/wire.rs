//! The JSON that controllers write: owner references, metadata carried over, pods made from templates.

use bytes::Bytes;
use evenkeel_api::{
    Meta, OwnerReference, StrMap, Text, View,
    time::{SignedDuration, Timestamp},
};
use evenkeel_runtime::plan::Target;
use serde::{Serialize, Serializer};

/// Which object an action is about.
pub(crate) fn target<V: View>(object: &V) -> Target {
    Target::of(V::kind(), object.meta())
}

/// A body of values whose serialisation cannot fail: maps with string keys, numbers, texts.
pub(crate) fn json(value: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("a tree of structs with string keys serialises"))
}

/// A time as the API keeps it: whole seconds.
pub(crate) fn whole_second(now: Timestamp) -> Timestamp {
    now.checked_sub(SignedDuration::from_nanos(i64::from(now.subsec_nanosecond()))).unwrap_or(now)
}

/// Serialises a time in whole seconds.
pub(crate) fn time<S: Serializer>(
    time: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(&whole_second(*time)),
        None => serializer.serialize_none(),
    }
}

/// Serialises a map of strings.
pub(crate) fn map<S: Serializer>(map: &StrMap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter())
}

/// The reference from what a controller makes or adopts to what it does so for.
pub(crate) fn controller_reference(owner: &Target) -> OwnerReference {
    OwnerReference {
        api_version: owner.kind.api_version().into(),
        kind: (&*owner.kind.kind).into(),
        name: (&*owner.name).into(),
        uid: (&*owner.uid).into(),
        controller: true,
        block_owner_deletion: true,
    }
}

/// Serialises owner references.
pub(crate) fn owners<S: Serializer>(
    owners: &[OwnerReference],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Owner<'a> {
        api_version: &'a str,
        kind: &'a str,
        name: &'a str,
        uid: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        controller: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        block_owner_deletion: bool,
    }
    serializer.collect_seq(owners.iter().map(|owner| Owner {
        api_version: &owner.api_version,
        kind: &owner.kind,
        name: &owner.name,
        uid: &owner.uid,
        controller: owner.controller,
        block_owner_deletion: owner.block_owner_deletion,
    }))
}

/// A merge patch that gives an object these owners in place of those it has.
pub(crate) fn owners_patch(owners: &[OwnerReference]) -> String {
    let owners: Vec<String> = owners.iter().map(OwnerReference::to_json).collect();
    format!(r#"{{"metadata":{{"ownerReferences":[{}]}}}}"#, owners.join(","))
}

/// Metadata of an object that is written back: all that a writer could lose, and the version that it was decided upon.
/// The server puts back what is missing of the rest (uid, times, `managedFields`).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kept<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) generate_name: &'a str,
    #[serde(serialize_with = "map", skip_serializing_if = "StrMap::is_empty")]
    pub(crate) labels: &'a StrMap,
    #[serde(serialize_with = "map", skip_serializing_if = "StrMap::is_empty")]
    pub(crate) annotations: &'a StrMap,
    #[serde(serialize_with = "owners", skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) owner_references: &'a [OwnerReference],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) finalizers: &'a [Text],
}

/// Metadata of an object that is to be made; what is empty is left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fresh<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) generate_name: &'a str,
    pub(crate) namespace: &'a str,
    #[serde(serialize_with = "map", skip_serializing_if = "StrMap::is_empty")]
    pub(crate) labels: &'a StrMap,
    #[serde(serialize_with = "map", skip_serializing_if = "StrMap::is_empty")]
    pub(crate) annotations: &'a StrMap,
    #[serde(serialize_with = "owners", skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) owner_references: &'a [OwnerReference],
}

impl<'a> Kept<'a> {
    /// The metadata as it is, but for the annotations.
    pub(crate) fn with_annotations(meta: &'a Meta, annotations: &'a StrMap) -> Self {
        Self {
            name: &meta.name,
            namespace: &meta.namespace,
            uid: &meta.uid,
            resource_version: &meta.resource_version,
            generate_name: &meta.generate_name,
            labels: &meta.labels,
            annotations,
            owner_references: &meta.owners,
            finalizers: &meta.finalizers,
        }
    }
}

/// The body of a PUT on a status sub-resource. The spec is not in it: the server takes it from what it has, before it
/// validates, and leaves it out when it notes who set what.
pub(crate) fn status_body<V: View>(
    object: &V,
    annotations: &StrMap,
    status: &impl Serialize,
) -> Bytes {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a, S> {
        api_version: &'a str,
        kind: &'a str,
        metadata: Kept<'a>,
        status: &'a S,
    }
    let kind = V::kind();
    json(&Body {
        api_version: &kind.api_version(),
        kind: &kind.kind,
        metadata: Kept::with_annotations(object.meta(), annotations),
        status,
    })
}
