//! Printers of rbac.authorization.k8s.io.

use super::cells::{Cells, age, created_at, name};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{list, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "ClusterRoleBinding" | "RoleBinding" => role_binding,
        "ClusterRole" | "Role" => created_at,
        _ => return None,
    })
}

/// Returns the cells of a RoleBinding or a ClusterRoleBinding, with its subjects by kind.
///
/// Upstream: `printRoleBinding`, `printClusterRoleBinding`.
fn role_binding(printed: &PrintedObject<'_>) -> Cells {
    let subjects = |kind: &str| {
        list(printed, "subjects")
            .iter()
            .filter(|subject| text(subject, "kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", text(subject, "namespace"), text(subject, "name"))
                }
                _ => text(subject, "name").to_owned(),
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    vec![
        json!(name(printed)),
        json!(format!("{}/{}", text(printed, "roleRef.kind"), text(printed, "roleRef.name"))),
        json!(age(printed)),
        json!(subjects("User")),
        json!(subjects("Group")),
        json!(subjects("ServiceAccount")),
    ]
}
