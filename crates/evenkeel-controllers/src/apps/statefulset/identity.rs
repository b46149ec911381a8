//! Who a pod of a set is: its number, and what follows from it.

use crate::pods::REVISION_LABEL;
use evenkeel_api::{
    OwnerReference,
    template::Template,
    views::{Pod, StatefulSet},
};
use serde_json::{Value, json};

/// The label that holds a pod's own name, for Services of a single pod.
pub(crate) const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The set's name and the number that a pod's name says: `web-3` is number 3 of `web`. A number that is too great is none.
pub(crate) fn parse(name: &str) -> Option<(&str, Option<i32>)> {
    let (parent, number) = name.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (parent, number.parse().ok()))
}

/// Whether the name is one that the set gives its pods.
pub(crate) fn is_member(set: &StatefulSet, pod: &Pod) -> bool {
    parse(&pod.meta.name).is_some_and(|(parent, _)| parent == &*set.meta.name)
}

/// The pod's number.
pub(crate) fn ordinal(pod: &Pod) -> Option<i32> {
    parse(&pod.meta.name)?.1
}

/// The name of the pod of this number.
pub(crate) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.meta.name)
}

/// The name of the claim that this template gives the pod of this number.
pub(crate) fn claim_name(set: &StatefulSet, template: &str, ordinal: i32) -> String {
    format!("{template}-{}-{ordinal}", set.meta.name)
}

/// The first number: `ordinals.start`.
pub(crate) fn ordinals_start(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().map_or(0, |ordinals| ordinals.start)
}

/// How many pods there should be.
pub(crate) fn replicas(set: &StatefulSet) -> i32 {
    set.spec.replicas.unwrap_or(1).max(0)
}

/// The place of this number among those that the set should have, if it has one.
pub(crate) fn place(set: &StatefulSet, ordinal: i32) -> Option<usize> {
    let place = i64::from(ordinal) - i64::from(ordinals_start(set));
    usize::try_from(place).ok().filter(|place| *place < replicas(set).unsigned_abs() as usize)
}

/// Body of the pod of this number.
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
                spec["volumes"] = volumes(set, ordinal, spec["volumes"].take());
            }
        })
        .with_label(POD_NAME_LABEL, &name)
        .with_label(POD_INDEX_LABEL, &ordinal.to_string())
        .with_label(REVISION_LABEL, revision);
    let prefix = format!("{}-", set.meta.name);
    template.named_pod_json(&name, &prefix, &set.meta.namespace, owner)
}

/// A volume for each claim, and those of the template that no claim takes the place of.
fn volumes(set: &StatefulSet, ordinal: i32, given: Value) -> Value {
    let templates = &set.spec.volume_claim_templates;
    let claims = templates.iter().map(|claim| volume(set, &claim.name, ordinal));
    let Value::Array(given) = given else { return claims.collect() };
    let others = given
        .into_iter()
        .filter(|volume| templates.iter().all(|claim| volume["name"] != *claim.name));
    claims.chain(others).collect()
}

fn volume(set: &StatefulSet, template: &str, ordinal: i32) -> Value {
    json!({
        "name": template,
        "persistentVolumeClaim": { "claimName": claim_name(set, template, ordinal) },
    })
}

/// What has to change on a pod so that it is who its name says (a JSON patch); nothing if all is well. No server lets the
/// volumes of a pod change: its refusal tells the user why this pod cannot serve.
pub(crate) fn repair(set: &StatefulSet, pod: &Pod, ordinal: i32) -> Vec<Value> {
    let mut changes = Vec::new();
    let name = pod_name(set, ordinal);
    if pod.meta.labels.get(POD_NAME_LABEL) != Some(&name) {
        let label = |label: &str, value: String| {
            let path = format!("/metadata/labels/{}", label.replace('/', "~1"));
            json!({ "op": "add", "path": path, "value": value })
        };
        changes.push(label(POD_NAME_LABEL, name));
        changes.push(label(POD_INDEX_LABEL, ordinal.to_string()));
    }
    for template in &set.spec.volume_claim_templates {
        let claim = claim_name(set, &template.name, ordinal);
        let mounts = pod.spec.volumes.iter().any(|volume| {
            let source = volume.source.persistent_volume_claim.as_deref();
            volume.name == template.name
                && source.is_some_and(|source| *source.claim_name == *claim)
        });
        if !mounts {
            let volume = volume(set, &template.name, ordinal);
            changes.push(json!({ "op": "add", "path": "/spec/volumes/-", "value": volume }));
        }
    }
    changes
}
