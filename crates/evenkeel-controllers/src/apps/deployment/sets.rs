//! A ReplicaSet with its planned changes, and the actions that write it.

use crate::wire::{self, NewMetadata};
use bytes::Bytes;
use evenkeel_api::{
    StrMap, Text, View,
    template::{HASH_LABEL, Template},
    views::{Deployment, ReplicaSet, ReplicaSetStatus},
};
use evenkeel_runtime::plan::{Action, Create, EventRecord, OnError, Target, Update};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::{Arc, LazyLock};

/// Status of a set that does not exist yet.
static NO_STATUS: LazyLock<ReplicaSetStatus> = LazyLock::new(ReplicaSetStatus::default);

/// A ReplicaSet, and its state after the planned changes.
#[derive(Debug)]
pub(crate) struct PlannedSet<'a> {
    /// The set in the cache. `None` if the plan creates it.
    pub(crate) existing: Option<&'a Arc<ReplicaSet>>,
    /// Name of the set.
    pub(crate) name: Text,
    /// Planned `spec.replicas` of the ReplicaSet.
    pub(crate) replicas: i32,
    /// Planned `spec.minReadySeconds` of the ReplicaSet.
    pub(crate) min_ready_seconds: i32,
    /// Planned annotations of the ReplicaSet.
    pub(crate) annotations: StrMap,
    /// Whether the plan writes the set.
    pub(crate) changed: bool,
    /// Events to record after the write.
    pub(crate) events: Vec<EventRecord>,
}

impl<'a> PlannedSet<'a> {
    /// Returns an existing set without changes.
    pub(crate) fn unchanged(set: &'a Arc<ReplicaSet>) -> Self {
        Self {
            existing: Some(set),
            name: set.meta.name.clone(),
            replicas: set.spec.replicas.unwrap_or(1),
            min_ready_seconds: set.spec.min_ready_seconds,
            annotations: set.meta.annotations.clone(),
            changed: false,
            events: Vec::new(),
        }
    }

    /// Returns the observed status.
    pub(crate) fn status(&self) -> &ReplicaSetStatus {
        self.existing.map_or(&*NO_STATUS, |set| &set.status)
    }

    /// Returns the action that creates the set from the Deployment's template. Upstream: `getNewReplicaSet`.
    pub(crate) fn into_create_action(self, deployment: &Deployment, owner: &Target) -> Action {
        // The name ends with the hash of the pod template.
        let hash = self.name.rsplit('-').next().unwrap_or_default();
        let template = deployment.spec.template.with_label(HASH_LABEL, hash);
        let owners = [wire::controller_reference(owner)];
        let body = ReplicaSetBody {
            api_version: "apps/v1",
            kind: "ReplicaSet",
            metadata: NewMetadata {
                name: &self.name,
                generate_name: "",
                namespace: &deployment.meta.namespace,
                labels: &template.labels,
                annotations: &self.annotations,
                owner_references: &owners,
            },
            spec: Spec {
                replicas: self.replicas,
                min_ready_seconds: self.min_ready_seconds,
                selector: deployment.spec.selector.with_label(HASH_LABEL, hash).to_json(),
                template: template_json(&template),
            },
        };
        Action::Create(Create {
            done: self.events.into_iter().next(),
            on_error: OnError::SkipRest,
            ..Create::new(ReplicaSet::kind(), &deployment.meta.namespace, wire::json(&body))
        })
    }

    /// Returns the update of an existing set, and its events. The update contains the whole object, as in upstream,
    /// because the controller's role grants `update` on ReplicaSets.
    pub(crate) fn into_update_actions(self) -> impl Iterator<Item = Action> {
        let actions = self.existing.map(|set| {
            let body = update_body(set, self.replicas, self.min_ready_seconds, &self.annotations);
            let mut events = self.events.into_iter();
            let update = Action::Update(Update {
                done: events.next(),
                on_error: OnError::Abort,
                ..Update::new(wire::target(&**set), body)
            });
            [update].into_iter().chain(events.map(Action::Event))
        });
        actions.into_iter().flatten()
    }
}

/// Returns the whole ReplicaSet with these planned fields.
fn update_body(
    set: &ReplicaSet,
    replicas: i32,
    min_ready_seconds: i32,
    annotations: &StrMap,
) -> Bytes {
    wire::json(&ReplicaSetBody {
        api_version: "apps/v1",
        kind: "ReplicaSet",
        metadata: wire::PreservedMetadata::with_annotations(&set.meta, annotations),
        spec: Spec {
            replicas,
            min_ready_seconds,
            selector: set.spec.selector.to_json(),
            template: template_json(&set.spec.template),
        },
    })
}

/// Serialized form of a ReplicaSet.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplicaSetBody<M> {
    api_version: &'static str,
    kind: &'static str,
    metadata: M,
    spec: Spec,
}

/// Serialized form of a ReplicaSet's spec.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    min_ready_seconds: i32,
    selector: Option<serde_json::Value>,
    template: Box<RawValue>,
}

/// Encodes a pod template as JSON.
fn template_json(template: &Template) -> Box<RawValue> {
    RawValue::from_string(template.to_json()).expect("a pod template serializes to JSON")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &i32) -> bool {
    *n == 0
}
