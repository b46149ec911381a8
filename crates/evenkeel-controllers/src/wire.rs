//! JSON written by controllers: owner references, metadata that is carried over, bodies of status updates.

use bytes::Bytes;
use evenkeel_api::{
    Meta, OwnerReference, StrMap, Text, View,
    time::{SignedDuration, Timestamp},
};
use evenkeel_runtime::plan::Target;
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Annotation of `kubectl apply`. It is not copied to other objects. Upstream: `LastAppliedConfigAnnotation`.
pub(crate) const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the target of an action on the object.
pub(crate) fn target<V: View>(object: &V) -> Target {
    Target::of(V::kind(), object.meta())
}

/// Returns a copy without `managedFields`, which the API server keeps.
pub(crate) fn copy_for_update<K>(object: &K) -> K
where
    K: Clone + Metadata<Ty = ObjectMeta>,
{
    let mut copy = object.clone();
    copy.metadata_mut().managed_fields = None;
    copy
}

/// Serializes a value whose serialization cannot fail: maps with string keys, numbers, strings.
pub(crate) fn json(value: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("a tree of structs with string keys serializes"))
}

/// Rounds a time down to seconds, the API's precision.
pub(crate) fn whole_second(now: Timestamp) -> Timestamp {
    now.checked_sub(SignedDuration::from_nanos(i64::from(now.subsec_nanosecond()))).unwrap_or(now)
}

/// Serializes a time, rounded down to seconds.
pub(crate) fn serialize_time<S: Serializer>(
    time: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(&whole_second(*time)),
        None => serializer.serialize_none(),
    }
}

/// Serializes a map of strings.
pub(crate) fn serialize_map<S: Serializer>(map: &StrMap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter())
}

/// Converts a map of strings to a JSON object.
pub(crate) fn json_map(map: &StrMap) -> serde_json::Map<String, Value> {
    map.iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// Converts a count to the API's integer type, saturating.
pub(crate) fn to_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Returns a controller reference to the owner, with `blockOwnerDeletion`. Upstream: `NewControllerRef`.
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

/// Serializes owner references.
pub(crate) fn serialize_owners<S: Serializer>(
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

/// Returns a merge patch that replaces the owner references.
pub(crate) fn owners_patch(owners: &[OwnerReference]) -> String {
    let owners: Vec<String> = owners.iter().map(OwnerReference::to_json).collect();
    format!(r#"{{"metadata":{{"ownerReferences":[{}]}}}}"#, owners.join(","))
}

/// Metadata for the update of an object: the fields that an update would lose, and uid and resource version as
/// preconditions. The API server restores other fields, such as times and `managedFields`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreservedMetadata<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) generate_name: &'a str,
    #[serde(serialize_with = "serialize_map", skip_serializing_if = "StrMap::is_empty")]
    pub(crate) labels: &'a StrMap,
    #[serde(serialize_with = "serialize_map", skip_serializing_if = "StrMap::is_empty")]
    pub(crate) annotations: &'a StrMap,
    #[serde(serialize_with = "serialize_owners", skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) owner_references: &'a [OwnerReference],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) finalizers: &'a [Text],
}

/// Metadata for the creation of an object. Empty fields are left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewMetadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) generate_name: &'a str,
    pub(crate) namespace: &'a str,
    #[serde(serialize_with = "serialize_map", skip_serializing_if = "StrMap::is_empty")]
    pub(crate) labels: &'a StrMap,
    #[serde(serialize_with = "serialize_map", skip_serializing_if = "StrMap::is_empty")]
    pub(crate) annotations: &'a StrMap,
    #[serde(serialize_with = "serialize_owners", skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) owner_references: &'a [OwnerReference],
}

impl<'a> PreservedMetadata<'a> {
    /// Returns the object's metadata with these annotations in place of its own.
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

/// Returns the body of an update of the status sub-resource. The body has no spec: before validation the API server
/// takes the stored one, so `managedFields` do not change.
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
        metadata: PreservedMetadata<'a>,
        status: &'a S,
    }
    let kind = V::kind();
    json(&Body {
        api_version: &kind.api_version(),
        kind: &kind.kind,
        metadata: PreservedMetadata::with_annotations(object.meta(), annotations),
        status,
    })
}
