//! Admission plug-in OwnerReferencesPermissionEnforcement, disabled by default. A user who changes owner references
//! needs the permission to delete the object. A user who blocks an owner's deletion needs the permission to update the
//! owner's finalizers.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Changing owner references needs the permission to delete the object, except at its creation | `validate` |
//! | A new `blockOwnerDeletion: true` needs `update` of the owner's `finalizers` | `validate` |
//! | The plug-in ignores the status of pods | `validate` |

use std::collections::HashMap;

use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{flag, list, text};
use serde_json::Value;

use crate::api::Context;
use crate::auth::Attributes;

/// Refuses changes of owner references if the user lacks the permissions.
///
/// Upstream: `gcPermissionsEnforcement.Validate`.
pub(super) fn validate(
    cx: &Context<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let resource = cx.resource;
    if (resource.group(), resource.plural(), cx.subresource) == ("", "pods", "status")
        || !is_changing(object, old)
    {
        return Ok(());
    }
    let refuse = |why: &str| {
        // Upstream's message ends with the authorizer's reason, which is empty, and its error, which Go prints as
        // `<nil>`.
        let why = format!("{why}: , <nil>");
        Err(StatusError::forbidden(&resource.name, cx.name, why))
    };
    let delete = Attributes {
        verb: "delete",
        group: resource.group(),
        resource: resource.plural(),
        subresource: cx.subresource,
        namespace: cx.namespace,
        name: cx.name,
        ..Attributes::default()
    };
    if old.is_some() && !cx.allows(&delete) {
        return refuse("cannot set an ownerRef on a resource you can't delete");
    }
    let blocking_references = newly_blocking(object, old);
    let finalizers_update = |group, resource, namespace, name| Attributes {
        verb: "update",
        group,
        resource,
        subresource: "finalizers",
        namespace,
        name,
        ..Attributes::default()
    };
    if blocking_references.is_empty() || cx.allows(&finalizers_update("*", "*", "", "*")) {
        return Ok(());
    }
    let rows = cx.api.table.rows();
    for owner in blocking_references {
        let (version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
        let mut resources = rows.of_kind(version, kind).peekable();
        if resources.peek().is_none() {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind {kind}: no matches for kind {kind:?} in version {version:?}"
            );
            return Err(StatusError::forbidden(&resource.name, cx.name, why));
        }
        for row in resources {
            let namespace = if row.namespaced { cx.namespace } else { "" };
            let name = text(owner, "name");
            if !cx.allows(&finalizers_update(row.group(), row.plural(), namespace, name)) {
                return refuse(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on",
                );
            }
        }
    }
    Ok(())
}

fn owners(object: &Value) -> &[Value] {
    list(object, "metadata.ownerReferences")
}

/// Returns whether the owner references differ from those of the old object.
///
/// Upstream: `isChangingOwnerReference`.
fn is_changing(object: &Value, old: Option<&Value>) -> bool {
    owners(object) != old.map(owners).unwrap_or_default()
}

/// Returns the references that block the deletion of their owner, but did not before the write.
///
/// Upstream: `newBlockingOwnerDeletionRefs`.
fn newly_blocking<'a>(object: &'a Value, old: Option<&Value>) -> Vec<&'a Value> {
    let blocks = |owner: &Value| flag(owner, "blockOwnerDeletion");
    // Of several references with the same UID, the last one counts.
    let blocked_before: HashMap<&str, bool> = old
        .map(owners)
        .unwrap_or_default()
        .iter()
        .map(|owner| (text(owner, "uid"), blocks(owner)))
        .collect();
    let was_blocked =
        |owner: &Value| blocked_before.get(text(owner, "uid")).copied().unwrap_or_default();
    owners(object).iter().filter(|owner| blocks(owner) && !was_blocked(owner)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(owners: &[(&str, Option<bool>)]) -> Value {
        let owners: Vec<Value> = owners
            .iter()
            .map(|(uid, block)| match block {
                None => json!({"uid": uid}),
                Some(block) => json!({"uid": uid, "blockOwnerDeletion": block}),
            })
            .collect();
        json!({"metadata": {"ownerReferences": owners}})
    }

    #[test]
    fn only_what_changes_needs_permissions() {
        type Owners<'a> = &'a [(&'a str, Option<bool>)];
        let table: [(Owners<'_>, Option<Owners<'_>>, bool, &[&str]); 10] = [
            (&[], None, false, &[]),
            (&[("a", None)], None, true, &[]),
            (&[("a", Some(true)), ("b", Some(false))], None, true, &["a"]),
            (&[], Some(&[]), false, &[]),
            (&[("a", Some(true))], Some(&[("a", Some(true))]), false, &[]),
            (&[("a", Some(true))], Some(&[("a", Some(false))]), true, &["a"]),
            (&[("a", Some(true))], Some(&[("a", None)]), true, &["a"]),
            (&[("a", Some(true)), ("b", Some(true))], Some(&[("a", Some(true))]), true, &["b"]),
            (&[("a", None)], Some(&[("a", Some(true))]), true, &[]),
            (&[], Some(&[("a", Some(true))]), true, &[]),
        ];
        for (new, old, changes, blocking) in table {
            let (new, old) = (object(new), old.map(object));
            assert_eq!(is_changing(&new, old.as_ref()), changes, "{new} {old:?}");
            let found: Vec<&str> =
                newly_blocking(&new, old.as_ref()).iter().map(|owner| text(owner, "uid")).collect();
            assert_eq!(found, blocking, "{new} {old:?}");
        }
    }
}
