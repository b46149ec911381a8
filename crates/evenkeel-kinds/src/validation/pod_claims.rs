//! Validation of resource claims in pods and their containers.

use super::names;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the names of the resource claims in a pod's spec.
///
/// Upstream: `gatherPodResourceClaimNames`.
pub(super) fn claim_names(spec: &Value) -> BTreeSet<&str> {
    let names = list(spec, "resourceClaims").iter().map(|claim| text(claim, "name"));
    names.filter(|name| !name.is_empty()).collect()
}

/// Fields of a pod's resource claim that name its source. Exactly one of them must be set.
const SOURCE_FIELDS: [&str; 2] = ["resourceClaimName", "resourceClaimTemplateName"];

/// Validates the resource claims of a pod. Each must have a unique name, and must reference either a ResourceClaim or
/// a ResourceClaimTemplate.
///
/// Upstream: `validatePodResourceClaims`.
pub(super) fn pod_resource_claims(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let resource_claims_path = path.field("resourceClaims");
    let mut seen = BTreeSet::new();
    for (index, claim) in list(spec, "resourceClaims").iter().enumerate() {
        let path = resource_claims_path.index(index);
        match text(claim, "name") {
            "" => errors.required(&path.field("name"), ""),
            name if !seen.insert(name) => errors.duplicate(&path.field("name"), name),
            name => errors.invalid_for_each(&path.field("name"), name, &names::dns_label(name)),
        }
        let source_name = |field: &str| get(claim, field).and_then(Value::as_str);
        let detail = match SOURCE_FIELDS.map(|field| source_name(field).is_some()) {
            [true, true] => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            [false, false] => {
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            }
            _ => "",
        };
        if !detail.is_empty() {
            // Upstream's error quotes the Go struct, whose field names begin with capital letters.
            let go_struct = json!({"Name": text(claim, "name"),
                "ResourceClaimName": source_name("resourceClaimName"),
                "ResourceClaimTemplateName": source_name("resourceClaimTemplateName")});
            errors.invalid(&path, go_struct, detail);
        }
        for field in SOURCE_FIELDS {
            if let Some(name) = source_name(field) {
                errors.invalid_for_each(&path.field(field), name, &names::dns_subdomain(name));
            }
        }
    }
}

/// Validates the resource claims of a container. Each must name a claim of the pod, and may name one request of
/// that claim.
///
/// Two entries may not overlap. An entry without a request refers to all requests of the claim, so it conflicts with
/// every other entry for the same claim.
///
/// Upstream: `validateResourceClaimNames`.
pub(super) fn container_claims(
    container: &Value,
    claim_names: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let resources_path = path.field("resources");
    let claims_path = resources_path.field("claims");
    // Keys of the previous entries: the name of a claim, or `name/request`.
    let mut seen = BTreeSet::<String>::new();
    // Names of claims that a previous entry names with a request.
    let mut claims_with_request = BTreeSet::new();
    for (index, claim) in list(container, "resources.claims").iter().enumerate() {
        let path = claims_path.index(index);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if seen.contains(name) {
            errors.duplicate(&path, name);
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                let messages = names::dns_label(request);
                errors.invalid_for_each(&path.field("request"), request, &messages);
                key = format!("{name}/{request}");
            }
            let overlaps_request = request.is_empty() && claims_with_request.contains(name);
            if seen.contains(&key) || overlaps_request {
                errors.duplicate(&path, key.as_str());
            }
            if !request.is_empty() {
                claims_with_request.insert(name);
            }
            seen.insert(key);
        }
        // A full list would drop the error, so the detail, which is long, need not be built.
        if !claim_names.contains(name) && !errors.is_full() {
            let names: Vec<&str> = claim_names.iter().copied().collect();
            let listed = if names.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", names.join(", "))
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{listed}");
            errors.not_found_because(&path, name, &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_a_pod_and_of_its_containers_are_validated() {
        let spec = json!({"resourceClaims": [
            {"name": "a", "resourceClaimName": "x"},
            {"name": "a", "resourceClaimName": "X"},
            {"name": "b", "resourceClaimName": "x", "resourceClaimTemplateName": "y"},
            {"name": ""},
        ]});
        let mut errors = Errors::default();
        pod_resource_claims(&spec, &Path::new("spec"), &mut errors);
        let fields = |errors: Errors| -> Vec<String> {
            errors.into_vec().into_iter().map(|error| error.field).collect()
        };
        let expected = [
            "spec.resourceClaims[1].name",
            "spec.resourceClaims[1].resourceClaimName",
            "spec.resourceClaims[2]",
            "spec.resourceClaims[3].name",
            "spec.resourceClaims[3]",
        ];
        assert_eq!(fields(errors), expected);
        for (claims, expected) in [
            (
                json!([{"name": "a", "request": "r"}, {"name": "a", "request": "s"}, {"name": "b"}]),
                vec![],
            ),
            (json!([{"name": "a"}, {"name": "a", "request": "r"}]), vec![1]),
            (json!([{"name": "a", "request": "r"}, {"name": "a"}]), vec![1]),
            (json!([{"name": "a", "request": "r"}, {"name": "a", "request": "r"}]), vec![1]),
            (json!([{"name": "c"}, {"name": ""}]), vec![0, 1]),
        ] {
            let mut errors = Errors::default();
            let container = json!({"resources": {"claims": claims}});
            container_claims(&container, &claim_names(&spec), &Path::new("c"), &mut errors);
            let expected: Vec<String> =
                expected.iter().map(|index| format!("c.resources.claims[{index}]")).collect();
            assert_eq!(fields(errors), expected, "{container}");
        }
    }
}
