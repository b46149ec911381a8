//! Node authorizer: limits a kubelet to the permissions of the ClusterRole `system:node`, and to objects that the pods
//! on its node refer to.
//!
//! Kubelets send few requests to this server, so each request reads the node's pods from the store. Upstream keeps a
//! graph of them.

use std::sync::LazyLock;

use serde_json::Value;

use super::User;
use super::rule::{Attributes, PolicyRule};
use crate::store::{Entry, Store};
use crate::strategy;
use evenkeel_apimachinery::value::{list, object, text};

/// Annotation of a mirror pod, the API object of a static pod. The Node authorizer ignores references in mirror pods.
pub(crate) const MIRRORS: &str = "kubernetes.io/config.mirror";
const LEASES: &str = "kube-node-lease";

/// Returns the node name of a kubelet's user, `system:node:NAME` in the group `system:nodes`; it may be empty. Returns
/// `None` for other users.
///
/// Upstream: `NodeIdentity`.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix("system:node:")?;
    user.is_in("system:nodes").then_some(name)
}

/// Returns whether a kubelet may make a request; `rules` are those of `system:node`. The function allows writes of pods
/// and nodes, and creations of other objects that name their node. The NodeRestriction plug-in checks those by the
/// object.
///
/// Upstream: `NodeAuthorizer.Authorize`.
pub(super) fn authorize(
    store: &Store,
    node: &str,
    rules: &[PolicyRule],
    attributes: &Attributes<'_>,
) -> bool {
    let whole = attributes.subresource.is_empty();
    let is = |verbs: &[&str]| verbs.contains(&attributes.verb);
    let reads = is(&["get", "list", "watch"]);
    let writes = is(&["create", "update", "patch", "delete"]);
    let own = || attributes.verb == "create" || attributes.name == node;
    match (attributes.group, attributes.resource) {
        _ if attributes.path.is_some() => rules_allow(rules, attributes),
        ("", "secrets" | "configmaps") => whole && reads && used(store, node, attributes),
        ("", "persistentvolumeclaims") if attributes.subresource == "status" => {
            is(&["update", "patch"]) && used(store, node, attributes)
        }
        ("", "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims") => {
            whole && is(&["get"]) && used(store, node, attributes)
        }
        ("", "serviceaccounts") => match attributes.subresource {
            "" => is(&["get"]) && used(store, node, attributes),
            "token" => is(&["create"]) && used(store, node, attributes),
            _ => false,
        },
        ("", "persistentvolumes") => whole && is(&["get"]) && holds(store, node, attributes.name),
        ("storage.k8s.io", "volumeattachments") => {
            let resource_prefix = "storage.k8s.io/volumeattachments";
            whole && is(&["get"]) && runs(store, node, resource_prefix, attributes.name)
        }
        ("storage.k8s.io", "csinodes") => whole && (is(&["get"]) || writes) && own(),
        ("coordination.k8s.io", "leases") => {
            attributes.namespace == LEASES && (is(&["get"]) || writes) && own()
        }
        ("resource.k8s.io", "resourceslices") => whole && slices(store, node, attributes),
        ("certificates.k8s.io", "podcertificaterequests") => {
            whole && requests(store, node, attributes)
        }
        ("", "nodes") => match attributes.subresource {
            "" => is(&["create", "update", "patch"]) || reads && attributes.name == node,
            "status" => is(&["update", "patch"]),
            _ => false,
        },
        ("", "pods") => match attributes.subresource {
            "" => is(&["create", "delete"]) || reads && pods(store, node, attributes),
            "status" => is(&["update", "patch"]),
            "eviction" => is(&["create"]),
            _ => false,
        },
        _ => rules_allow(rules, attributes),
    }
}

/// Returns whether one of the rules allows the request.
///
/// Upstream: `RulesAllow`.
fn rules_allow(rules: &[PolicyRule], attributes: &Attributes<'_>) -> bool {
    rules.iter().any(|rule| rule.rule_allows(attributes))
}

/// Returns whether a kubelet may read pods: a pod on its node, or a list whose field selector names the node.
///
/// Upstream: `authorizePod`.
fn pods(store: &Store, node: &str, attributes: &Attributes<'_>) -> bool {
    match attributes.verb {
        "get" => {
            runs(store, node, "/pods", &format!("{}/{}", attributes.namespace, attributes.name))
        }
        _ => selects(attributes, node),
    }
}

/// Returns whether a kubelet may read or write ResourceSlices: its node's, or lists whose field selector names the
/// node.
///
/// Upstream: `authorizeResourceSlice`.
fn slices(store: &Store, node: &str, attributes: &Attributes<'_>) -> bool {
    match attributes.verb {
        "create" => true,
        "get" | "update" | "patch" | "delete" => {
            runs(store, node, "resource.k8s.io/resourceslices", attributes.name)
        }
        "list" | "watch" | "deletecollection" => selects(attributes, node),
        _ => false,
    }
}

/// Returns whether a kubelet may create or read PodCertificateRequests. It may read its node's, and lists whose field
/// selector names the node.
///
/// Upstream: `authorizePodCertificateRequest`.
fn requests(store: &Store, node: &str, attributes: &Attributes<'_>) -> bool {
    let key = || format!("{}/{}", attributes.namespace, attributes.name);
    match attributes.verb {
        "create" => true,
        "get" => runs(store, node, "certificates.k8s.io/podcertificaterequests", &key()),
        "list" | "watch" => selects(attributes, node),
        _ => false,
    }
}

/// Returns whether the field selector requires `spec.nodeName` to be the node.
fn selects(attributes: &Attributes<'_>, node: &str) -> bool {
    attributes.field_selector.require("spec.nodeName", node)
}

/// Returns whether the stored object names the node in `spec.nodeName`.
fn runs(store: &Store, node: &str, resource_prefix: &str, key: &str) -> bool {
    store
        .get(resource_prefix, key)
        .is_some_and(|entry| text(&read(&entry), "spec.nodeName") == node)
}

fn read(entry: &Entry) -> Value {
    entry.decode().unwrap_or_default()
}

/// Returns whether a pod on the node refers to the object.
fn used(store: &Store, node: &str, attributes: &Attributes<'_>) -> bool {
    !attributes.namespace.is_empty()
        && by_a_pod(store, node, attributes.namespace, attributes.resource, attributes.name)
}

fn by_a_pod(store: &Store, node: &str, namespace: &str, resource: &str, name: &str) -> bool {
    !name.is_empty()
        && store
            .within("/pods", namespace)
            .iter()
            .any(|entry| is_on(entry, node) && refers(&read(entry), resource, name))
}

/// Returns whether a stored pod is on the node. It reads the entry's selectable fields, because few pods of a namespace
/// need decoding.
fn is_on(pod: &Entry, node: &str) -> bool {
    static FIELD: LazyLock<Option<usize>> = LazyLock::new(|| {
        let fields = strategy::of("", "pods").selectable_fields("");
        fields.iter().position(|field| *field == "spec.nodeName")
    });
    FIELD.is_some_and(|field| pod.selection.field(field) == node)
}

/// Returns whether the volume is bound to a claim that a pod on the node uses.
fn holds(store: &Store, node: &str, name: &str) -> bool {
    let Some(entry) = store.get("/persistentvolumes", name) else { return false };
    let volume = read(&entry);
    let claim = |field: &str| text(&volume, field).to_owned();
    let (namespace, name) = (claim("spec.claimRef.namespace"), claim("spec.claimRef.name"));
    !namespace.is_empty() && by_a_pod(store, node, &namespace, "persistentvolumeclaims", &name)
}

/// Returns whether a pod refers to the object. Mirror pods do not count: the kubelet writes them itself and could refer
/// to any object.
fn refers(pod: &Value, resource: &str, name: &str) -> bool {
    let mirror = object(pod, "metadata.annotations").is_some_and(|all| all.contains_key(MIRRORS));
    !mirror && names(pod, resource, &|named| named == name)
}

/// Returns whether a pod, mirror or not, refers to any object of a resource.
///
/// Upstream: `VisitPodSecretNames`, `VisitPodConfigmapNames`.
pub(crate) fn refers_to_any(pod: &Value, resource: &str) -> bool {
    names(pod, resource, &|named| !named.is_empty())
}

/// Returns whether `is` holds for a name by which the pod refers to an object of the resource.
fn names(pod: &Value, resource: &str, is: &dyn Fn(&str) -> bool) -> bool {
    let volumes = list(pod, "spec.volumes");
    match resource {
        "secrets" => {
            let pulled = list(pod, "spec.imagePullSecrets");
            pulled.iter().any(|secret| is(text(secret, "name")))
                || in_environment(pod, ("secretKeyRef", "secretRef"), is)
                || volumes.iter().any(|volume| is_secret(volume, is))
        }
        "configmaps" => {
            in_environment(pod, ("configMapKeyRef", "configMapRef"), is)
                || volumes.iter().any(|volume| {
                    is(text(volume, "configMap.name")) || projected(volume, "configMap", is)
                })
        }
        "persistentvolumeclaims" => volumes.iter().any(|volume| {
            let made = || format!("{}-{}", text(pod, "metadata.name"), text(volume, "name"));
            is(text(volume, "persistentVolumeClaim.claimName"))
                || volume.get("ephemeral").is_some() && is(&made())
        }),
        "serviceaccounts" => is(text(pod, "spec.serviceAccountName")),
        "resourceclaims" => {
            let made = list(pod, "status.resourceClaimStatuses");
            let named = list(pod, "spec.resourceClaims");
            made.iter().chain(named).any(|claim| is(text(claim, "resourceClaimName")))
                || is(text(pod, "status.extendedResourceClaimStatus.resourceClaimName"))
        }
        _ => false,
    }
}

/// Returns whether a container's `env` or `envFrom` refers to the object. `kinds` are the reference fields of `env` and
/// `envFrom`.
fn in_environment(pod: &Value, kinds: (&str, &str), is: &dyn Fn(&str) -> bool) -> bool {
    let (one, all) = (format!("valueFrom.{}.name", kinds.0), format!("{}.name", kinds.1));
    let lists = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];
    let mut containers = lists.into_iter().flat_map(|field| list(pod, field));
    containers.any(|container| {
        list(container, "env").iter().any(|variable| is(text(variable, &one)))
            || list(container, "envFrom").iter().any(|source| is(text(source, &all)))
    })
}

fn projected(volume: &Value, kind: &str, is: &dyn Fn(&str) -> bool) -> bool {
    let path = format!("{kind}.name");
    list(volume, "projected.sources").iter().any(|source| is(text(source, &path)))
}

/// Returns whether a volume refers to the Secret. Volume sources name it in one of three fields.
fn is_secret(volume: &Value, is: &dyn Fn(&str) -> bool) -> bool {
    let mut sources = volume.as_object().into_iter().flat_map(|volume| volume.values());
    projected(volume, "secret", is)
        || sources.any(|source| {
            ["secretName", "secretRef.name", "nodePublishSecretRef.name"]
                .into_iter()
                .any(|field| is(text(source, field)))
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

    #[tokio::test]
    async fn pods_of_other_nodes_are_not_decoded() {
        use crate::registry;
        use crate::store::{Encoded, Expect, SelectionAttributes};
        let store = Store::in_memory(registry::INDEXED_RESOURCES);
        // The selectable field and the object differ, to show which of the two is read.
        for (name, selected, decoded) in
            [("a", "n1", "n1"), ("b", "n2", "n1"), ("c", "n1", "n2"), ("d", "", "")]
        {
            let volumes = json!([{"name": "v", "secret": {"secretName": name}}]);
            let pod = |node: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node, "volumes": volumes}});
            let strategy = strategy::of("", "pods");
            let selection = SelectionAttributes::new(&pod(selected), |put| {
                strategy.field_values(&pod(selected), put);
            });
            let encoded = Encoded::new(&pod(decoded), selection);
            let key = format!("ns/{name}");
            store.put(&"/pods".into(), &key, Expect::Absent, encoded).await.expect("written");
        }
        let reads = |name: &str| by_a_pod(&store, "n1", "ns", "secrets", name);
        assert_eq!(["a", "b", "c", "d"].map(reads), [true, false, true, false]);
        assert!(!by_a_pod(&store, "n1", "other", "secrets", "a"));
    }

    #[test]
    fn only_a_user_of_the_nodes_group_is_a_node() {
        let node = |name: &str, group: &str| {
            node_of(&User::authenticated(name, [group])).map(str::to_owned)
        };
        assert_eq!(node("system:node:n", "system:nodes").as_deref(), Some("n"));
        assert_eq!(node("system:node:n", "others"), None);
        assert_eq!(node("system:node:", "system:nodes").as_deref(), Some(""));
        assert_eq!(node("n", "system:nodes"), None);
    }
}
