//! Deletes objects that a previous configuration added to a cluster with a data folder, and that the current one lacks.

use super::generated::{GENERATED, mark};
use anyhow::{Context as _, Result};
use evenkeel_api::Kind;
use evenkeel_runtime::client::{Client, DeleteOptions, ListOptions};
use serde_json::Value;
use std::collections::BTreeSet;

/// Deletes the objects of these kinds, in all namespaces, that have the label `label` with the value `true` and their own
/// mark, except those in `desired`. Skips kinds that the server does not serve. Logs a deletion that the server refuses, and
/// keeps the object.
///
/// # Errors
/// Fails if the server rejects a list.
pub(super) async fn prune(
    client: &Client,
    label: &str,
    kinds: &[Kind],
    desired: &[Value],
) -> Result<()> {
    let options = ListOptions { labels: format!("{label}=true"), ..ListOptions::default() };
    for kind in kinds {
        let kept = names(desired, &kind.kind);
        let found = match client.list_metadata(kind, "", &options).await {
            Err(error) if error.is_not_found() => continue,
            found => found.with_context(|| format!("the {} cannot be listed", kind.plural))?,
        };
        for object in found.items {
            let (namespace, name) = (&*object.meta.namespace, &*object.meta.name);
            let own_mark = mark(&kind.kind, namespace, name);
            let is_own = object.meta.annotations.get(GENERATED) == Some(&*own_mark);
            if !is_own || kept.contains(&(namespace, name)) {
                continue;
            }
            let options =
                DeleteOptions { uid: object.meta.uid.to_string(), ..DeleteOptions::default() };
            match client.delete(kind, namespace, name, &options).await {
                Err(error) if !error.is_not_found_or_replaced() => tracing::warn!(
                    kind = %kind.kind, namespace, name, %error,
                    "an object of a previous configuration cannot be deleted; delete it with kubectl"
                ),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns the namespaces and names of the objects of a kind.
fn names<'a>(objects: &'a [Value], kind: &str) -> BTreeSet<(&'a str, &'a str)> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind);
    let text = |value: &'a Value| value.as_str().unwrap_or_default();
    of_kind
        .map(|object| {
            let metadata = &object["metadata"];
            (text(&metadata["namespace"]), text(&metadata["name"]))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_those_of_one_kind() {
        let objects = [
            json!({"kind": "RoleBinding", "metadata": {"name": "a", "namespace": "ns"}}),
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"}}),
        ];
        assert_eq!(names(&objects, "RoleBinding"), BTreeSet::from([("ns", "a")]));
        assert_eq!(names(&objects, "ClusterRoleBinding"), BTreeSet::from([("", "b")]));
    }
}
