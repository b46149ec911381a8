//! Claims of a pod: names, creation from templates, reservations. An entry is an element of `spec.resourceClaims`.

use super::Template;
use crate::newer_kinds::{ResourceClaim, ResourceClaimConsumerReference};
pub(super) use crate::resource::podclaims::{
    Claim, ClaimName, claim_name, claim_names, is_for_pod, is_from_template,
};
use crate::wire;
use evenkeel_api::{OwnerReference, View as _, views::Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference as Owner};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Annotation of a claim with its name in the pod's spec. Upstream: `PodResourceClaimAnnotation`.
pub(super) const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Maximum length of a `generateName` that is not truncated. It leaves room for a hyphen and five letters in 63
/// characters.
const MAX_BASE_NAME_LENGTH: usize = 57;

/// Returns whether the pod is finished, or was deleted before it ran. Upstream: `isPodDone`.
pub(super) fn is_done(pod: &Pod) -> bool {
    crate::pods::is_terminal(pod) || pod.meta.deleting() && pod.spec.node_name.is_empty()
}

/// Returns the reference to the pod that owns the claim.
pub(super) fn owning_pod(claim: &Claim) -> Option<&OwnerReference> {
    let owners = &claim.meta().owners;
    let is_pod = |owner: &&OwnerReference| &*owner.api_version == "v1" && &*owner.kind == "Pod";
    owners.iter().find(|owner| owner.controller && is_pod(owner))
}

/// Returns whether the claim was created for the entry of this name, according to the claim's annotation.
pub(super) fn is_for_entry(claim: &Claim, entry_name: &str) -> bool {
    claim.meta().annotations.get(POD_CLAIM) == Some(entry_name)
}

/// A disabled feature that a template uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum DisabledFeature {
    #[error("admin access is requested, but the feature is disabled")]
    AdminAccess,
    #[error("template includes a prioritized list of subrequests, but the feature is disabled")]
    PrioritizedList,
}

/// Feature gates of claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct FeatureGates {
    /// Whether the gate `DRAAdminAccess` is on.
    pub(super) admin_access: bool,
    /// Whether the gate `DRAPrioritizedList` is on.
    pub(super) prioritized_list: bool,
}

/// Checks that a template uses no disabled feature.
pub(super) fn check_features(
    template: &Template,
    gates: FeatureGates,
) -> Result<(), DisabledFeature> {
    let spec = template.spec.as_ref().and_then(|spec| spec.spec.as_ref());
    if !gates.admin_access && wants_admin_access(spec) {
        return Err(DisabledFeature::AdminAccess);
    }
    if !gates.prioritized_list && has_prioritized_list(spec) {
        return Err(DisabledFeature::PrioritizedList);
    }
    Ok(())
}

/// Returns whether a request lists subrequests (`firstAvailable`).
fn has_prioritized_list(spec: Option<&Value>) -> bool {
    let has_subrequests = |request: &Value| {
        let subrequests = request.get("firstAvailable").and_then(Value::as_array);
        subrequests.is_some_and(|subrequests| !subrequests.is_empty())
    };
    requests(spec).iter().any(has_subrequests)
}

/// Returns whether the spec requests admin access. Prioritized subrequests cannot request it.
pub(super) fn wants_admin_access(spec: Option<&Value>) -> bool {
    let has_access =
        |request: &Value| request.pointer("/exactly/adminAccess") == Some(&Value::Bool(true));
    requests(spec).iter().any(has_access)
}

/// Returns the device requests of a claim.
fn requests(spec: Option<&Value>) -> &[Value] {
    let requests = spec.and_then(|spec| spec.pointer("/devices/requests"));
    requests.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the claim to create from the template, for the pod's entry of this name.
pub(super) fn new_claim(pod: &Pod, entry_name: &str, template: &Template) -> ResourceClaim {
    let template_spec = template.spec.clone().unwrap_or_default();
    let meta = template_spec.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM.to_owned(), entry_name.to_owned());
    let owner = Owner {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.meta.name.to_string(),
        uid: pod.meta.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let metadata = ObjectMeta {
        generate_name: Some(generate_name(&pod.meta.name, entry_name)),
        annotations: Some(annotations),
        labels: meta.labels,
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    ResourceClaim::new(metadata, template_spec.spec)
}

/// Returns the `generateName` of a claim. If it is too long, both names are truncated in proportion. As upstream, a
/// truncated one does not end with a hyphen.
fn generate_name(pod_name: &str, entry_name: &str) -> String {
    let full = format!("{pod_name}-{entry_name}-");
    if full.len() <= MAX_BASE_NAME_LENGTH {
        return full;
    }
    // Names are ASCII, so a cut does not split a character.
    let truncate = |name: &str| {
        let length = name.len() * MAX_BASE_NAME_LENGTH / full.len();
        name.get(..length).unwrap_or(name).to_owned()
    };
    format!("{}-{}", truncate(pod_name), truncate(entry_name))
}

/// Returns the apply configuration of the pod's `resourceClaimStatuses`, extended by `claims`: names of claims by the
/// names of their entries.
pub(super) fn claim_statuses(pod: &Pod, claims: &BTreeMap<String, String>) -> Value {
    let mut claim_by_entry: BTreeMap<&str, &str> = pod
        .status
        .resource_claim_statuses
        .iter()
        .filter_map(|status| Some((&*status.name, status.resource_claim_name.as_deref()?)))
        .collect();
    claim_by_entry.extend(claims.iter().map(|(entry, claim)| (&**entry, &**claim)));
    let statuses: Vec<Value> = claim_by_entry
        .iter()
        .map(|(entry, claim)| json!({"name": entry, "resourceClaimName": claim}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": &*pod.meta.name, "namespace": &*pod.meta.namespace},
        "status": {"resourceClaimStatuses": statuses},
    })
}

/// Returns whether the claim is allocated and not reserved for the pod.
pub(super) fn lacks_reservation(claim: &Claim, pod: &Pod) -> bool {
    let Some(status) = &claim.status else { return false };
    let reserved = status.reserved_for.as_deref().unwrap_or_default();
    status.allocation.is_some() && !reserved.iter().any(|consumer| *consumer.uid == *pod.meta.uid)
}

/// Returns the claim with a reservation for the pod. Upstream: `reserveFor`.
pub(super) fn with_reservation(claim: &Claim, pod: &Pod) -> ResourceClaim {
    let mut claim = wire::copy_for_update(&**claim);
    let status = claim.status.get_or_insert_default();
    status.reserved_for.get_or_insert_default().push(ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: pod.meta.name.to_string(),
        uid: pod.meta.uid.to_string(),
    });
    claim
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use proptest::prelude::*;

    /// Returns a pod with these `resourceClaims` and `resourceClaimStatuses`.
    fn pod(claims: &Value, statuses: &Value) -> Pod {
        object(&json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"resourceClaims": claims}, "status": {"resourceClaimStatuses": statuses},
        }))
    }

    #[test]
    fn claim_names_come_from_the_spec_or_the_status() {
        let claims = json!([
            {"name": "own", "resourceClaimName": "there"},
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "not-yet", "resourceClaimTemplateName": "t"},
            {"name": "not-needed", "resourceClaimTemplateName": "t"},
            {"name": "new"},
        ]);
        let pod = pod(
            &claims,
            &json!([{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "not-needed"}]),
        );
        let names: Vec<_> =
            pod.spec.resource_claims.iter().map(|claim| claim_name(&pod, claim)).collect();
        assert_eq!(
            names,
            [
                ClaimName::Is("there"),
                ClaimName::Is("p-made-x"),
                ClaimName::NotYet,
                ClaimName::NotNeeded,
                ClaimName::Unknown
            ]
        );
        assert_eq!(claim_names(&pod).collect::<Vec<_>>(), ["there", "p-made-x"]);
    }

    fn template(spec: &Value) -> Template {
        object(&json!({
            "metadata": {"name": "t", "namespace": "ns"},
            "spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": spec},
        }))
    }

    #[test]
    fn claim_is_built_from_the_template() {
        let spec =
            json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}});
        let claim = new_claim(&pod(&json!([]), &json!([])), "gpu", &template(&spec));
        let meta = &claim.metadata;
        assert_eq!(meta.generate_name.as_deref(), Some("p-gpu-"));
        assert_eq!(meta.labels.as_ref().unwrap()["a"], "b");
        assert_eq!(meta.annotations.as_ref().unwrap().len(), 2);
        assert_eq!(meta.annotations.as_ref().unwrap()[POD_CLAIM], "gpu");
        let owner = &meta.owner_references.as_ref().unwrap()[0];
        assert_eq!(
            (&*owner.kind, &*owner.uid, owner.controller, owner.block_owner_deletion),
            ("Pod", "u", Some(true), None)
        );
        assert_eq!(claim.spec.unwrap()["devices"]["requests"][0]["name"], "r");
    }

    #[test]
    fn long_names_are_truncated_in_proportion() {
        assert_eq!(generate_name("pod", "claim"), "pod-claim-");
        let (pod, claim) = ("p".repeat(60), "c".repeat(20));
        // 60 and 20 of 82 letters, scaled to 57.
        assert_eq!(generate_name(&pod, &claim), format!("{}-{}", "p".repeat(41), "c".repeat(13)));
    }

    #[test]
    fn disabled_features_are_rejected() {
        let admin = template(
            &json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "adminAccess": true}}]}}),
        );
        let list = template(
            &json!({"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]}]}}),
        );
        let only_admin = FeatureGates { admin_access: true, prioritized_list: false };
        let only_list = FeatureGates { admin_access: false, prioritized_list: true };
        assert_eq!(check_features(&admin, only_list), Err(DisabledFeature::AdminAccess));
        assert_eq!(check_features(&list, only_admin), Err(DisabledFeature::PrioritizedList));
        assert_eq!(check_features(&admin, only_admin), Ok(()));
        assert_eq!(check_features(&list, only_list), Ok(()));
    }

    #[test]
    fn statuses_are_merged_by_name() {
        let pod = pod(
            &json!([]),
            &json!([{"name": "b", "resourceClaimName": "old"}, {"name": "not-needed"}, {"name": "c", "resourceClaimName": "kept"}]),
        );
        let claims = BTreeMap::from([
            ("b".to_owned(), "new".to_owned()),
            ("a".to_owned(), "first".to_owned()),
        ]);
        let statuses = &claim_statuses(&pod, &claims)["status"]["resourceClaimStatuses"];
        let want = json!([
            {"name": "a", "resourceClaimName": "first"}, {"name": "b", "resourceClaimName": "new"}, {"name": "c", "resourceClaimName": "kept"},
        ]);
        assert_eq!(*statuses, want);
    }

    #[test]
    fn pod_is_added_to_reserved_for() {
        let pod = pod(&json!([]), &json!([]));
        let claim = |status: Value| -> Claim {
            object(
                &json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {}, "status": status}),
            )
        };
        assert!(!lacks_reservation(&claim(json!({})), &pod));
        assert!(lacks_reservation(&claim(json!({"allocation": {}})), &pod));
        let others = json!({"allocation": {}, "reservedFor": [{"resource": "pods", "name": "o", "uid": "o"}]});
        let reserved = with_reservation(&claim(others), &pod);
        assert_eq!(reserved.status.as_ref().unwrap().reserved_for.as_ref().unwrap().len(), 2);
        assert!(!lacks_reservation(&Full::new(reserved), &pod));
    }

    use evenkeel_runtime::cache::Full;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn generated_names_fit(pod in "[a-z]{1,253}", claim in "[a-z]{1,63}") {
            prop_assert!(generate_name(&pod, &claim).len() <= MAX_BASE_NAME_LENGTH + 1);
        }
    }
}
