//! Fields that are nobody's: the system's own, and those that a write to the resource or its sub-resource cannot change.

use std::sync::LazyLock;

use super::set::FieldSet;
use crate::schema::Schema;

/// Groups whose kinds reset all of `metadata` on a write of status.
const STRICT_GROUPS: [&str; 7] = [
    "admissionregistration.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Fields of every object that no manager owns.
pub(super) fn system() -> &'static FieldSet {
    static SYSTEM: LazyLock<FieldSet> = LazyLock::new(system_fields);
    &SYSTEM
}

fn system_fields() -> FieldSet {
    let names = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let names = names.map(|name| format!("f:{name}"));
    let mut paths: Vec<Vec<&str>> = vec![vec!["f:apiVersion"], vec!["f:kind"], vec!["f:metadata"]];
    paths.extend(names.iter().map(|name| vec!["f:metadata", name.as_str()]));
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    FieldSet::of(&paths)
}

/// Fields that the strategy of a resource, or of its sub-resource, puts back to what they were.
pub(super) fn reset(schema: &Schema, subresource: &str) -> FieldSet {
    let (group, kind) = (schema.group(), schema.kind());
    match (subresource, kind) {
        (_, "CSINode") | ("" | "finalize" | "resize" | "ephemeralcontainers", _)
            if schema.has_status() =>
        {
            match kind {
                "CertificateSigningRequest" => FieldSet::of(&[&["f:spec"], &["f:status"]]),
                _ => FieldSet::of(&[&["f:status"]]),
            }
        }
        ("approval", "CertificateSigningRequest") => {
            FieldSet::of(&[&["f:spec"], &["f:status", "f:certificate"]])
        }
        ("status", "CertificateSigningRequest") => {
            FieldSet::of(&[&["f:spec"], &["f:status", "f:conditions"]])
        }
        ("status", "Deployment") => FieldSet::of(&[&["f:spec"], &["f:metadata", "f:labels"]]),
        ("status", "Pod") => FieldSet::of(&[
            &["f:spec"],
            &["f:metadata", "f:deletionTimestamp"],
            &["f:metadata", "f:ownerReferences"],
        ]),
        ("status", _) if schema.is_custom() => FieldSet::of(&[&["f:spec"], &["f:metadata"]]),
        ("status", _) if STRICT_GROUPS.contains(&group) || kind == "ServiceCIDR" => {
            FieldSet::of(&[&["f:spec"], &["f:metadata"]])
        }
        ("status", _) => FieldSet::of(&[&["f:spec"]]),
        _ => FieldSet::default(),
    }
}
