//! Objects for tests.

use evenkeel_api::{
    Encoding, Kind, Meta, OwnerReference, StrMap, View,
    shared::Shared,
    time::{SignedDuration, Timestamp},
    views::{Pod, PodCondition},
};
use evenkeel_runtime::{
    discovery::{Resource, ServerResources},
    plan::{Outcome, Reply, Target},
};
use serde_json::Value;
use std::sync::Arc;

/// The time at which tests begin.
pub(crate) const T0: Timestamp = Timestamp::constant(1_790_000_000, 0);

/// Seconds after [`T0`], or before.
pub(crate) fn at(seconds: i64) -> Timestamp {
    T0 + SignedDuration::from_secs(seconds)
}

/// An object from its JSON.
#[track_caller]
pub(crate) fn object<V: View>(json: &Value) -> V {
    V::decode(json.to_string().as_bytes(), Encoding::Json).unwrap()
}

/// The reference that a controller puts on what is its own.
pub(crate) fn owned_by<V: View>(owner: &V) -> Shared<OwnerReference> {
    [crate::wire::controller_reference(&Target::of(V::kind(), owner.meta()))].into()
}

/// Metadata of an object of the namespace `ns`, made at [`T0`], with its name for a uid.
pub(crate) fn meta(name: &str) -> Meta {
    Meta {
        name: name.into(),
        namespace: "ns".into(),
        uid: name.into(),
        resource_version: "1".into(),
        generation: 1,
        creation: Some(T0),
        ..Meta::default()
    }
}

/// Labels with this single entry.
pub(crate) fn label(key: &str, value: &str) -> StrMap {
    [(key, value)].into_iter().collect()
}

/// A running pod on a node, ready since `ready` if it is.
pub(crate) fn pod(name: &str, ready: Option<Timestamp>) -> Pod {
    let mut pod =
        Pod { meta: Meta { labels: label("app", "web"), ..meta(name) }, ..Pod::default() };
    pod.spec.node_name = "node".into();
    pod.status.phase = "Running".into();
    if let Some(ready) = ready {
        pod.status.conditions = Box::new([PodCondition {
            type_: "Ready".into(),
            status: "True".into(),
            last_transition_time: Some(ready),
            ..PodCondition::default()
        }]);
    }
    pod
}

/// A resource of the preferred version of its group, without verbs and sub-resources.
pub(crate) fn resource(kind: Kind) -> Resource {
    Resource {
        kind,
        singular: "".into(),
        verbs: Box::default(),
        short_names: Box::default(),
        categories: Box::default(),
        subresources: Box::default(),
        preferred: true,
    }
}

/// Deployments, as [`resource`] makes them.
pub(crate) fn deployments() -> Resource {
    resource(Kind::new("apps", "v1", "Deployment", "deployments", true))
}

/// The outcome of a discovery that finds these resources.
pub(crate) fn discovered(resources: Vec<Resource>) -> Outcome {
    let all = ServerResources { resources, failed: Vec::new() };
    Outcome { reply: Some(Reply::of_resources(Arc::new(all))), ..Outcome::success() }
}
