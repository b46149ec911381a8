//! Fields that no manager owns: system fields, and fields that a strategy resets.

use std::sync::LazyLock;

use super::field_set::FieldSet;
use crate::reset::status_update_resets_metadata;
use crate::schema::Schema;

/// Returns the system fields, which no manager owns.
///
/// Upstream: `stripMetaManager`.
pub(super) fn stripped_fields() -> &'static FieldSet {
    static SYSTEM: LazyLock<FieldSet> = LazyLock::new(stripped);
    &SYSTEM
}

fn stripped() -> FieldSet {
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
    FieldSet::from_paths(&paths)
}

/// Returns the fields that the strategy of a resource or subresource resets.
///
/// Upstream: `GetResetFields`.
pub(super) fn reset_fields(schema: &Schema, subresource: &str) -> FieldSet {
    let (group, kind) = (schema.group(), schema.kind());
    match (subresource, kind) {
        ("" | "finalize", _) if schema.has_status() => match kind {
            "CertificateSigningRequest" => FieldSet::from_paths(&[&["f:spec"], &["f:status"]]),
            _ => FieldSet::from_paths(&[&["f:status"]]),
        },
        ("approval", "CertificateSigningRequest") => {
            FieldSet::from_paths(&[&["f:spec"], &["f:status", "f:certificate"]])
        }
        ("status", "CertificateSigningRequest") => {
            FieldSet::from_paths(&[&["f:spec"], &["f:status", "f:conditions"]])
        }
        ("status", "Deployment") => {
            FieldSet::from_paths(&[&["f:spec"], &["f:metadata", "f:labels"]])
        }
        ("status", "Pod") => FieldSet::from_paths(&[
            &["f:spec"],
            &["f:metadata", "f:deletionTimestamp"],
            &["f:metadata", "f:ownerReferences"],
        ]),
        ("status", _) if schema.is_custom() => {
            FieldSet::from_paths(&[&["f:spec"], &["f:metadata"]])
        }
        ("status", _) if status_update_resets_metadata(group, kind) => {
            FieldSet::from_paths(&[&["f:spec"], &["f:metadata"]])
        }
        ("status", _) => FieldSet::from_paths(&[&["f:spec"]]),
        _ => FieldSet::default(),
    }
}
