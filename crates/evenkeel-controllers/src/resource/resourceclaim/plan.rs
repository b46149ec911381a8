//! Claims of a pod: names, creation from templates, reservations.

use super::{Claim, Template};
use evenkeel_api::{
    OwnerReference, View as _,
    views::{Pod, PodResourceClaim},
};
use k8s_openapi::{
    api::resource::v1::{
        DeviceRequest, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimSpec,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference as Owner},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Annotation of a claim with its name in the pod's spec. Upstream: `PodResourceClaimAnnotation`.
pub(super) const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Maximum length of the prefix of a generated name, which leaves room for a hyphen and five letters in 63
/// characters.
const MAX_BASE_NAME_LENGTH: usize = 57;

/// Name of a pod's claim. Upstream: `resourceclaim.Name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name<'a> {
    /// The claim has this name.
    Is(&'a str),
    /// The claim is not created yet.
    NotYet,
    /// The pod needs no claim.
    NotNeeded,
    /// The claim's source is unknown to this version.
    Unknown,
}

/// Returns the name of a pod's claim. Upstream: `resourceclaim.Name`.
pub(super) fn name<'a>(pod: &'a Pod, claim: &'a PodResourceClaim) -> Name<'a> {
    if !claim.resource_claim_name.is_empty() {
        return Name::Is(&claim.resource_claim_name);
    }
    if !is_from_template(claim) {
        return Name::Unknown;
    }
    match pod.status.resource_claim_statuses.iter().find(|status| status.name == claim.name) {
        None => Name::NotYet,
        Some(status) => status.resource_claim_name.as_deref().map_or(Name::NotNeeded, Name::Is),
    }
}

/// Whether the claim is created from a template.
pub(super) fn is_from_template(claim: &PodResourceClaim) -> bool {
    claim.resource_claim_name.is_empty() && !claim.resource_claim_template_name.is_empty()
}

/// Returns the names of all claims of the pod, including the scheduler's claim for extended resources.
pub(super) fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> + Clone {
    let own = pod.spec.resource_claims.iter().filter_map(|claim| match name(pod, claim) {
        Name::Is(name) => Some(name),
        Name::NotYet | Name::NotNeeded | Name::Unknown => None,
    });
    let extended = pod.status.extended_resource_claim_status.as_deref();
    own.chain(extended.map(|status| &*status.resource_claim_name)).filter(|name| !name.is_empty())
}

/// Whether the pod is finished, or was deleted before it ran. Upstream: `isPodDone`.
pub(super) fn is_done(pod: &Pod) -> bool {
    crate::pods::is_terminal(pod) || pod.meta.deleting() && pod.spec.node_name.is_empty()
}

/// Returns the pod that owns the claim.
pub(super) fn owning_pod(claim: &Claim) -> Option<&OwnerReference> {
    let owners = &claim.meta().owners;
    owners.iter().find(|one| one.controller && &*one.api_version == "v1" && &*one.kind == "Pod")
}

/// Whether the claim was created for this pod. Upstream: `resourceclaim.IsForPod`.
pub(super) fn is_for(claim: &Claim, pod: &Pod) -> bool {
    claim.meta().controlled_by(&pod.meta.uid)
}

/// Whether the claim's annotation has this name from the pod's spec. The pod's status may lack the claim.
pub(super) fn has_name_in_pod(claim: &Claim, within_pod: &str) -> bool {
    claim.meta().annotations.get(POD_CLAIM) == Some(within_pod)
}

/// A disabled feature that a template uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum DisabledFeature {
    #[error("admin access is requested, but the feature is disabled")]
    AdminAccess,
    #[error("template includes a prioritized list of subrequests, but the feature is disabled")]
    Prioritized,
}

/// Checks a template against the feature gates.
pub(super) fn allowed(
    template: &Template,
    admin: bool,
    prioritized: bool,
) -> Result<(), DisabledFeature> {
    let spec = template.spec.as_ref().and_then(|spec| spec.spec.as_ref());
    let wants_admin = wants_admin_access(spec);
    let has_list = requests(spec)
        .iter()
        .any(|request| request.first_available.as_ref().is_some_and(|all| !all.is_empty()));
    match (wants_admin && !admin, has_list && !prioritized) {
        (true, _) => Err(DisabledFeature::AdminAccess),
        (_, true) => Err(DisabledFeature::Prioritized),
        _ => Ok(()),
    }
}

/// Whether the spec requests admin access. Prioritized subrequests cannot request it.
pub(super) fn wants_admin_access(spec: Option<&ResourceClaimSpec>) -> bool {
    requests(spec).iter().any(|request| {
        request.exactly.as_ref().is_some_and(|exactly| exactly.admin_access == Some(true))
    })
}

fn requests(spec: Option<&ResourceClaimSpec>) -> &[DeviceRequest] {
    let devices = spec.and_then(|spec| spec.devices.as_ref());
    devices.and_then(|devices| devices.requests.as_deref()).unwrap_or_default()
}

/// Returns the claim to create for the entry `within_pod` of the pod's spec.
pub(super) fn new_claim(pod: &Pod, within_pod: &str, template: &Template) -> ResourceClaim {
    let from = template.spec.clone().unwrap_or_default();
    let meta = from.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM.to_owned(), within_pod.to_owned());
    let owner = Owner {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.meta.name.to_string(),
        uid: pod.meta.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(base(&pod.meta.name, within_pod)),
            annotations: Some(annotations),
            labels: meta.labels,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: from.spec,
        status: None,
    }
}

/// Returns the prefix of the claim's name. If it is too long, both parts are cut in proportion.
fn base(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= MAX_BASE_NAME_LENGTH {
        return whole;
    }
    // Names are ASCII, so a cut does not split a character.
    let cut = |part: &str| {
        let length = part.len() * MAX_BASE_NAME_LENGTH / whole.len();
        part.get(..length).unwrap_or(part).to_owned()
    };
    format!("{}-{}", cut(pod), cut(claim))
}

/// Returns the apply configuration of the pod's `resourceClaimStatuses`, extended by the created claims.
pub(super) fn statuses(pod: &Pod, made: &BTreeMap<String, String>) -> Value {
    let mut all: BTreeMap<&str, &str> = pod
        .status
        .resource_claim_statuses
        .iter()
        .filter_map(|status| Some((&*status.name, status.resource_claim_name.as_deref()?)))
        .collect();
    all.extend(made.iter().map(|(name, claim)| (&**name, &**claim)));
    let all: Vec<Value> =
        all.iter().map(|(name, claim)| json!({"name": name, "resourceClaimName": claim})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": &*pod.meta.name, "namespace": &*pod.meta.namespace},
        "status": {"resourceClaimStatuses": all},
    })
}

/// Whether the claim is allocated and not reserved for the pod.
pub(super) fn lacks_reservation(claim: &Claim, pod: &Pod) -> bool {
    let Some(status) = &claim.status else { return false };
    let reserved = status.reserved_for.as_deref().unwrap_or_default();
    status.allocation.is_some() && !reserved.iter().any(|one| *one.uid == *pod.meta.uid)
}

/// Returns the claim with a reservation for the pod. Upstream: `reserveFor`.
pub(super) fn reserved(claim: &Claim, pod: &Pod) -> ResourceClaim {
    let mut claim: ResourceClaim = (**claim).clone();
    claim.metadata.managed_fields = None;
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
            pod.spec.resource_claims.iter().map(|claim| name(&pod, claim)).collect();
        assert_eq!(
            names,
            [Name::Is("there"), Name::Is("p-made-x"), Name::NotYet, Name::NotNeeded, Name::Unknown]
        );
        assert_eq!(claims_of(&pod).collect::<Vec<_>>(), ["there", "p-made-x"]);
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
        let made = new_claim(&pod(&json!([]), &json!([])), "gpu", &template(&spec));
        let meta = &made.metadata;
        assert_eq!(meta.generate_name.as_deref(), Some("p-gpu-"));
        assert_eq!(meta.labels.as_ref().unwrap()["a"], "b");
        assert_eq!(meta.annotations.as_ref().unwrap().len(), 2);
        assert_eq!(meta.annotations.as_ref().unwrap()[POD_CLAIM], "gpu");
        let owner = &meta.owner_references.as_ref().unwrap()[0];
        assert_eq!(
            (&*owner.kind, &*owner.uid, owner.controller, owner.block_owner_deletion),
            ("Pod", "u", Some(true), None)
        );
        assert_eq!(made.spec.unwrap().devices.unwrap().requests.unwrap()[0].name, "r");
    }

    #[test]
    fn long_names_are_truncated_in_proportion() {
        assert_eq!(base("pod", "claim"), "pod-claim-");
        let (pod, claim) = ("p".repeat(60), "c".repeat(20));
        // 60 and 20 of 82 letters, scaled to 57.
        assert_eq!(base(&pod, &claim), format!("{}-{}", "p".repeat(41), "c".repeat(13)));
    }

    #[test]
    fn disabled_features_are_rejected() {
        let admin = template(
            &json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "adminAccess": true}}]}}),
        );
        let list = template(
            &json!({"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]}]}}),
        );
        assert_eq!(allowed(&admin, false, true), Err(DisabledFeature::AdminAccess));
        assert_eq!(allowed(&list, true, false), Err(DisabledFeature::Prioritized));
        assert_eq!((allowed(&admin, true, false), allowed(&list, false, true)), (Ok(()), Ok(())));
    }

    #[test]
    fn statuses_are_merged_by_name() {
        let pod = pod(
            &json!([]),
            &json!([{"name": "b", "resourceClaimName": "old"}, {"name": "none"}, {"name": "c", "resourceClaimName": "kept"}]),
        );
        let made = BTreeMap::from([
            ("b".to_owned(), "new".to_owned()),
            ("a".to_owned(), "first".to_owned()),
        ]);
        let all = &statuses(&pod, &made)["status"]["resourceClaimStatuses"];
        let want = json!([
            {"name": "a", "resourceClaimName": "first"}, {"name": "b", "resourceClaimName": "new"}, {"name": "c", "resourceClaimName": "kept"},
        ]);
        assert_eq!(*all, want);
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
        let taken = reserved(&claim(others), &pod);
        assert_eq!(taken.status.as_ref().unwrap().reserved_for.as_ref().unwrap().len(), 2);
        assert!(!lacks_reservation(&Full::new(taken), &pod));
    }

    use evenkeel_runtime::cache::Full;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn generated_names_fit(pod in "[a-z]{1,253}", claim in "[a-z]{1,63}") {
            prop_assert!(base(&pod, &claim).len() <= MAX_BASE_NAME_LENGTH + 1);
        }
    }
}
