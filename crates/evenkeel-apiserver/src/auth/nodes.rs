//! What a kubelet may: the rules of the role `system:node`, where those would open everybody's objects only what the
//! node's own pods refer to (upstream: the Node authorizer).
//!
//! Requests of nodes are rare here, so that the pods are read anew for each instead of kept as a graph. Lists of pods and of
//! ResourceSlices are not cut by their selectors.

use serde_json::Value;

use super::User;
use super::rbac::{Attributes, Rule};
use crate::kinds::value::{list, object, text};
use crate::store::{Entry, Store};

const MIRRORS: &str = "kubernetes.io/config.mirror";
const LEASES: &str = "kube-node-lease";

/// The node that a user is.
pub(super) fn node_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix("system:node:")?;
    (user.is_in("system:nodes") && !name.is_empty()).then_some(name)
}

/// Whether the node may; `rules` are those of its role.
pub(super) fn allow(store: &Store, node: &str, rules: &[Rule], what: &Attributes<'_>) -> bool {
    let ruled = || rules.iter().any(|rule| rule.covers(what));
    let whole = what.subresource.is_empty();
    let is = |verbs: &[&str]| verbs.contains(&what.verb);
    let own = || what.verb == "create" || what.name == node;
    match (what.group, what.resource) {
        ("", "secrets" | "configmaps") => whole && ruled() && used(store, node, what),
        ("", "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims") => {
            ruled() && used(store, node, what)
        }
        ("", "serviceaccounts") => ruled() && used(store, node, what),
        ("", "persistentvolumes") => ruled() && holds(store, node, what.name),
        ("storage.k8s.io", "volumeattachments") => {
            let entry = store.peek("storage.k8s.io/volumeattachments", what.name);
            ruled() && entry.is_some_and(|entry| text(&read(&entry), "spec.nodeName") == node)
        }
        ("storage.k8s.io", "csinodes") => ruled() && own(),
        ("coordination.k8s.io", "leases") => what.namespace == LEASES && ruled() && own(),
        ("", "nodes") if whole && is(&["get", "list", "watch"]) => what.name == node,
        ("", "pods") if whole && what.verb == "get" => {
            let entry = store.peek("/pods", &format!("{}/{}", what.namespace, what.name));
            entry.is_some_and(|entry| text(&read(&entry), "spec.nodeName") == node)
        }
        _ => ruled(),
    }
}

fn read(entry: &Entry) -> Value {
    serde_json::from_slice(entry.json()).unwrap_or_default()
}

/// Whether a pod of the node refers to the object.
fn used(store: &Store, node: &str, what: &Attributes<'_>) -> bool {
    !what.namespace.is_empty() && by_a_pod(store, node, what.namespace, what.resource, what.name)
}

fn by_a_pod(store: &Store, node: &str, namespace: &str, resource: &str, name: &str) -> bool {
    !name.is_empty()
        && store.within("/pods", namespace).iter().any(|entry| {
            let pod = read(entry);
            text(&pod, "spec.nodeName") == node && refers(&pod, resource, name)
        })
}

/// Whether the volume is bound to a claim that a pod of the node uses.
fn holds(store: &Store, node: &str, name: &str) -> bool {
    let Some(entry) = store.peek("/persistentvolumes", name) else { return false };
    let volume = read(&entry);
    let claim = |field: &str| text(&volume, field).to_owned();
    let (namespace, name) = (claim("spec.claimRef.namespace"), claim("spec.claimRef.name"));
    !namespace.is_empty() && by_a_pod(store, node, &namespace, "persistentvolumeclaims", &name)
}

/// Whether a pod names the object. One that only shows what a node runs by itself opens nothing.
fn refers(pod: &Value, resource: &str, name: &str) -> bool {
    if object(pod, "metadata.annotations").is_some_and(|all| all.contains_key(MIRRORS)) {
        return false;
    }
    let volumes = list(pod, "spec.volumes");
    match resource {
        "secrets" => {
            let pulled = list(pod, "spec.imagePullSecrets");
            pulled.iter().any(|secret| text(secret, "name") == name)
                || in_environment(pod, ("secretKeyRef", "secretRef"), name)
                || volumes.iter().any(|volume| is_secret(volume, name))
        }
        "configmaps" => {
            in_environment(pod, ("configMapKeyRef", "configMapRef"), name)
                || volumes.iter().any(|volume| {
                    text(volume, "configMap.name") == name || projected(volume, "configMap", name)
                })
        }
        "persistentvolumeclaims" => volumes.iter().any(|volume| {
            let made = || format!("{}-{}", text(pod, "metadata.name"), text(volume, "name"));
            text(volume, "persistentVolumeClaim.claimName") == name
                || volume.get("ephemeral").is_some() && made() == name
        }),
        "serviceaccounts" => text(pod, "spec.serviceAccountName") == name,
        "resourceclaims" => {
            let made = list(pod, "status.resourceClaimStatuses");
            let named = list(pod, "spec.resourceClaims");
            made.iter().chain(named).any(|claim| text(claim, "resourceClaimName") == name)
                || text(pod, "status.extendedResourceClaimStatus.resourceClaimName") == name
        }
        _ => false,
    }
}

/// Whether a variable, or all of them, come from the object; `kinds` is how the two are called.
fn in_environment(pod: &Value, kinds: (&str, &str), name: &str) -> bool {
    let (one, all) = (format!("valueFrom.{}.name", kinds.0), format!("{}.name", kinds.1));
    let lists = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];
    let mut containers = lists.into_iter().flat_map(|field| list(pod, field));
    containers.any(|container| {
        list(container, "env").iter().any(|variable| text(variable, &one) == name)
            || list(container, "envFrom").iter().any(|source| text(source, &all) == name)
    })
}

fn projected(volume: &Value, kind: &str, name: &str) -> bool {
    let path = format!("{kind}.name");
    list(volume, "projected.sources").iter().any(|source| text(source, &path) == name)
}

/// Sources call their secret by one of three names.
fn is_secret(volume: &Value, name: &str) -> bool {
    let mut sources = volume.as_object().into_iter().flat_map(|volume| volume.values());
    projected(volume, "secret", name)
        || sources.any(|source| {
            ["secretName", "secretRef.name", "nodePublishSecretRef.name"]
                .into_iter()
                .any(|field| text(source, field) == name)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_pod_names_is_found_wherever_it_does() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccountName": "sa", "imagePullSecrets": [{"name": "pull"}],
            "resourceClaims": [{"name": "r", "resourceClaimName": "device"}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "every"}}]}],
            "containers": [{"env": [{"name": "A", "value": "x"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "entry", "key": "k"}}}]}],
            "volumes": [{"name": "s", "secret": {"secretName": "files"}}, {"name": "c", "configMap": {"name": "map"}},
                {"name": "j", "projected": {"sources": [{"secret": {"name": "part"}}, {"configMap": {"name": "piece"}}]}},
                {"name": "d", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "driver"}}},
                {"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}, {"name": "e", "ephemeral": {}}]},
            "status": {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "made"}]}});
        let table: [(&str, &[&str]); 5] = [
            ("secrets", &["pull", "all", "key", "files", "part", "driver"]),
            ("configmaps", &["every", "entry", "map", "piece"]),
            ("persistentvolumeclaims", &["claim", "p-e"]),
            ("serviceaccounts", &["sa"]),
            ("resourceclaims", &["device", "made"]),
        ];
        let mut mirror = pod.clone();
        mirror["metadata"]["annotations"] = json!({MIRRORS: "x"});
        for (resource, names) in table {
            for name in names {
                assert!(refers(&pod, resource, name), "{resource} {name}");
                assert!(!refers(&mirror, resource, name), "{resource} {name}");
            }
            for (other, names) in table.into_iter().filter(|(other, _)| *other != resource) {
                assert!(
                    names.iter().all(|name| !refers(&pod, resource, name)),
                    "{resource} {other}"
                );
            }
            assert!(!refers(&pod, resource, "another"));
        }
    }

    #[test]
    fn only_a_user_of_the_nodes_group_is_a_node() {
        let node = |name: &str, group: &str| {
            node_of(&User::authenticated(name, [group])).map(str::to_owned)
        };
        assert_eq!(node("system:node:n", "system:nodes").as_deref(), Some("n"));
        assert_eq!(node("system:node:n", "others"), None);
        assert_eq!(node("system:node:", "system:nodes"), None);
        assert_eq!(node("n", "system:nodes"), None);
    }
}
