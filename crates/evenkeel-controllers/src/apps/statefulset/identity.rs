//! Stable identity of a pod: its ordinal, name, labels and claims. Upstream: `stateful_set_utils.go`.

use crate::pods::REVISION_LABEL;
use evenkeel_api::{
    OwnerReference,
    template::Template,
    views::{Pod, StatefulSet},
};
use serde_json::{Value, json};

/// Label with the pod's name, for Services that select one pod. Upstream: `StatefulSetPodNameLabel`.
pub(crate) const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// Label with the ordinal of a pod. Upstream: `PodIndexLabel`.
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
/// Path with which a JSON patch appends a volume.
pub(crate) const ADD_VOLUME_PATH: &str = "/spec/volumes/-";

/// Splits the ordinal off the name of a pod or claim: `web-3` is ordinal 3 of `web`. An ordinal beyond 32 bits is
/// `None`. Upstream: `getParentNameAndOrdinal`.
pub(crate) fn split_ordinal(name: &str) -> Option<(&str, Option<i32>)> {
    let (parent, number) = name.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (parent, number.parse().ok()))
}

/// Returns whether the pod's name consists of this set's name and an ordinal. Upstream: `isMemberOf`.
pub(crate) fn is_member(set: &StatefulSet, pod: &Pod) -> bool {
    split_ordinal(&pod.meta.name).is_some_and(|(parent, _)| parent == &*set.meta.name)
}

/// Returns the pod's ordinal. Upstream: `getOrdinal`.
pub(crate) fn ordinal(pod: &Pod) -> Option<i32> {
    let (_set_name, ordinal) = split_ordinal(&pod.meta.name)?;
    ordinal
}

/// Returns the name of the pod with this ordinal. Upstream: `getPodName`.
pub(crate) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.meta.name)
}

/// Returns the name of the claim for a template and an ordinal. Upstream: `getPersistentVolumeClaimName`.
pub(crate) fn claim_name(set: &StatefulSet, template: &str, ordinal: i32) -> String {
    format!("{template}-{}-{ordinal}", set.meta.name)
}

/// Returns `spec.ordinals.start`, default 0. Upstream: `getStartOrdinal`.
pub(crate) fn ordinals_start(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().map_or(0, |ordinals| ordinals.start)
}

/// Returns `spec.replicas`, default 1.
pub(crate) fn replicas(set: &StatefulSet) -> i32 {
    set.spec.replicas.unwrap_or(1).max(0)
}

/// Returns the position of an ordinal among the set's replicas; `None` beyond them. Upstream: `podInOrdinalRange`.
pub(crate) fn position(set: &StatefulSet, ordinal: i32) -> Option<usize> {
    let position = i64::from(ordinal) - i64::from(ordinals_start(set));
    if position >= i64::from(replicas(set)) {
        return None;
    }
    usize::try_from(position).ok()
}

/// Returns the body of the pod with this ordinal. Upstream: `newVersionedStatefulSetPod`.
pub(crate) fn pod_json(
    set: &StatefulSet,
    template: &Template,
    revision: &str,
    ordinal: i32,
    owner: &OwnerReference,
) -> String {
    let name = pod_name(set, ordinal);
    let template = template
        .with_spec(|spec| {
            spec["hostname"] = name.as_str().into();
            if !set.spec.service_name.is_empty() {
                spec["subdomain"] = (&*set.spec.service_name).into();
            }
            if !set.spec.volume_claim_templates.is_empty() {
                spec["volumes"] = with_claim_volumes(spec["volumes"].take(), set, ordinal);
            }
        })
        .with_label(POD_NAME_LABEL, &name)
        .with_label(POD_INDEX_LABEL, &ordinal.to_string())
        .with_label(REVISION_LABEL, revision);
    let prefix = format!("{}-", set.meta.name);
    template.named_pod_json(&name, &prefix, &set.meta.namespace, owner)
}

/// Returns a volume for each claim template, and the pod template's volumes of other names. Upstream:
/// `updateStorage`.
fn with_claim_volumes(volumes: Value, set: &StatefulSet, ordinal: i32) -> Value {
    let templates = &set.spec.volume_claim_templates;
    let claim_volumes = templates.iter().map(|claim| claim_volume(set, &claim.name, ordinal));
    let Value::Array(volumes) = volumes else { return claim_volumes.collect() };
    let others = volumes
        .into_iter()
        .filter(|volume| templates.iter().all(|claim| volume["name"] != *claim.name));
    claim_volumes.chain(others).collect()
}

/// Returns the volume of a pod that refers to the claim of this template.
fn claim_volume(set: &StatefulSet, template: &str, ordinal: i32) -> Value {
    json!({
        "name": template,
        "persistentVolumeClaim": { "claimName": claim_name(set, template, ordinal) },
    })
}

/// Returns the JSON patch that restores the pod's identity and storage. Empty if they match. The API server refuses
/// changes of a pod's volumes, and its error explains the pod's state to the user. Upstream: `identityMatches`,
/// `storageMatches`.
pub(crate) fn repair_patch(set: &StatefulSet, pod: &Pod, ordinal: i32) -> Vec<Value> {
    let mut changes = Vec::new();
    let name = pod_name(set, ordinal);
    if pod.meta.labels.get(POD_NAME_LABEL) != Some(&name) {
        changes.push(add_label(POD_NAME_LABEL, &name));
        changes.push(add_label(POD_INDEX_LABEL, &ordinal.to_string()));
    }
    for template in &set.spec.volume_claim_templates {
        let claim = claim_name(set, &template.name, ordinal);
        let has_volume = pod.spec.volumes.iter().any(|volume| {
            let source = volume.source.persistent_volume_claim.as_deref();
            volume.name == template.name
                && source.is_some_and(|source| *source.claim_name == *claim)
        });
        if !has_volume {
            let volume = claim_volume(set, &template.name, ordinal);
            changes.push(json!({ "op": "add", "path": ADD_VOLUME_PATH, "value": volume }));
        }
    }
    changes
}

/// Returns the JSON patch operation that adds a label.
fn add_label(label: &str, value: &str) -> Value {
    let path = format!("/metadata/labels/{}", label.replace('/', "~1"));
    json!({ "op": "add", "path": path, "value": value })
}
