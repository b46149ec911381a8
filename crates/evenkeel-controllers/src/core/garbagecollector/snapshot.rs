//! Graph of one namespace from a single read, for `evenkeel explain` without a running collector. [`act`]
//! reads the objects that these functions choose.

mod act;

pub use act::Snapshot;

use super::{graph::Graph, inspect, monitor::is_deletable};
use evenkeel_api::{Kind, OwnerReference};
use evenkeel_runtime::{discovery::ServerResources, introspect::Subject};

/// Returns the deletable resources of a namespace. None if `namespace` is empty.
fn resources_to_list(discovered: &ServerResources, namespace: &str) -> Vec<Kind> {
    if namespace.is_empty() {
        return Vec::new();
    }
    let resources = discovered
        .preferred()
        .filter(|resource| resource.kind.namespaced && is_deletable(resource));
    resources.map(|resource| resource.kind.clone()).collect()
}

/// Returns whether the graph got the object from a read, and not only from a reference.
fn is_observed(graph: &Graph, subject: &Subject) -> bool {
    let found = graph.find(|coordinates| inspect::matches_subject(coordinates, subject));
    found.is_some_and(|(_, node)| !node.is_virtual)
}

/// Returns the owners of the object that the graph knows from references only.
fn virtual_owners(graph: &Graph, subject: &Subject) -> Vec<OwnerReference> {
    let found = graph.find(|coordinates| inspect::matches_subject(coordinates, subject));
    found.map_or_else(Vec::new, |(_, node)| {
        let is_virtual =
            |owner: &&OwnerReference| graph.node(&owner.uid).is_some_and(|owner| owner.is_virtual);
        node.owners.iter().filter(is_virtual).cloned().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_api::views::Pod;
    use serde_json::json;

    #[test]
    fn object_known_from_references_only_is_not_observed() {
        let owner =
            |name: &str| json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": name });
        let pod = |name: &str, owners: &[&str]| {
            let owners: Vec<_> = owners.iter().map(|name| owner(name)).collect();
            let meta =
                json!({ "name": name, "uid": name, "namespace": "ns", "ownerReferences": owners });
            object::<Pod>(&json!({ "metadata": meta })).meta
        };
        let (mut graph, kind) = (Graph::default(), Kind::new("", "v1", "Pod", "pods", true));
        for meta in [pod("known", &[]), pod("web", &["known", "unknown"])] {
            graph.process_update(&kind, &meta);
        }
        let subject = |name: &str| Subject::new("", "Pod", "ns", name);
        for (name, observed, unread) in
            [("web", true, vec!["unknown"]), ("known", true, vec![]), ("unknown", false, vec![])]
        {
            assert_eq!(is_observed(&graph, &subject(name)), observed, "{name}");
            let owners = virtual_owners(&graph, &subject(name));
            let names: Vec<&str> = owners.iter().map(|owner| &*owner.name).collect();
            assert_eq!(names, unread, "{name}");
        }
    }
}
