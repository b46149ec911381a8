//! Node authorizer: limits a kubelet to the permissions of the ClusterRole `system:node`, and to objects that its pods
//! refer to.
//!
//! Upstream keeps a graph of pods and the objects that they refer to. This authorizer reads the node's pods from the
//! store at each request, because kubelets send few requests.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value;

use super::User;
use super::rule::{Attributes, PolicyRule};
use crate::store::{Entry, Store};
use crate::strategy;
use evenkeel_apimachinery::value::{list, object, text};

/// Annotation of a mirror pod, the API object of a static pod. The Node authorizer ignores references in mirror pods.
pub(crate) const MIRROR_ANNOTATION: &str = evenkeel_kinds::validation::pod_annotations::MIRROR;
/// Namespace of the nodes' leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Returns the node name of a kubelet's user, `system:node:NAME` in the group `system:nodes`; it may be empty. Returns
/// `None` for other users.
///
/// Upstream: `NodeIdentity`.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix("system:node:")?;
    user.is_in("system:nodes").then_some(name)
}

/// Decision about a kubelet's request, with the reason of a refusal. Some refusals have no reason.
pub(super) type Decision = Result<(), Cow<'static, str>>;

/// Decides whether a kubelet may make a request; `rules` are the rules of the ClusterRole `system:node`. The authorizer
/// allows all writes of pods and nodes, and all creations of other objects that name their node, because it does not
/// get the objects. The NodeRestriction admission plug-in checks these objects.
///
/// Upstream: `NodeAuthorizer.Authorize`.
pub(super) fn authorize(
    store: &Store,
    node: &str,
    rules: &[PolicyRule],
    attributes: &Attributes<'_>,
) -> Decision {
    let is_used = || is_used_on_node(store, node, attributes);
    match (attributes.group, attributes.resource) {
        _ if attributes.path.is_some() => rules_allow(rules, attributes),
        ("", "secrets" | "configmaps") => allow_read_namespaced(node, attributes, is_used),
        ("", "persistentvolumeclaims") if attributes.subresource == "status" => {
            allow_if(
                has_verb(attributes, &["update", "patch"]),
                "can only get/update/patch this type",
            )?;
            allow_related(node, attributes, is_used)
        }
        ("", "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims") => {
            allow_get(node, attributes, is_used)
        }
        ("", "serviceaccounts") => allow_service_account(node, attributes, is_used),
        ("", "persistentvolumes") => {
            allow_get(node, attributes, || is_volume_of_pod(store, node, attributes.name))
        }
        ("storage.k8s.io", "volumeattachments") => allow_get(node, attributes, || {
            names_node(store, node, "storage.k8s.io/volumeattachments", attributes.name)
        }),
        ("storage.k8s.io", "csinodes") => csi_node(node, attributes),
        ("coordination.k8s.io", "leases") => lease(node, attributes),
        ("resource.k8s.io", "resourceslices") => resource_slice(store, node, attributes),
        ("certificates.k8s.io", "podcertificaterequests") => {
            pod_certificate_request(store, node, attributes)
        }
        ("", "nodes") => own_node(node, attributes),
        ("", "pods") => pod(store, node, attributes),
        _ => rules_allow(rules, attributes),
    }
}

/// Verbs that read objects.
const READ_VERBS: &[&str] = &["get", "list", "watch"];
/// Verbs that a kubelet may use on its node's lease and CSINode.
const OWN_OBJECT_VERBS: &[&str] = &["get", "create", "update", "patch", "delete"];

fn has_verb(attributes: &Attributes<'_>, verbs: &[&str]) -> bool {
    verbs.contains(&attributes.verb)
}

/// Allows the request if the condition holds, and otherwise refuses it with this reason.
fn allow_if(condition: bool, reason: impl Into<Cow<'static, str>>) -> Decision {
    if condition { Ok(()) } else { Err(reason.into()) }
}

/// Decides whether one of the rules allows the request.
///
/// Upstream: `RulesAllow`.
fn rules_allow(rules: &[PolicyRule], attributes: &Attributes<'_>) -> Decision {
    allow_if(rules.iter().any(|rule| rule.rule_allows(attributes)), "")
}

/// Allows a request for an object that is related to the node, as `is_related` decides.
///
/// Upstream: `NodeAuthorizer.authorize`.
fn allow_related(
    node: &str,
    attributes: &Attributes<'_>,
    is_related: impl Fn() -> bool,
) -> Decision {
    allow_if(!attributes.name.is_empty(), "No Object name found")?;
    is_related().then_some(()).ok_or_else(|| no_relationship(node))
}

/// Returns the reason to refuse a request for an object that is not related to the node.
fn no_relationship(node: &str) -> Cow<'static, str> {
    format!("no relationship found between node '{node}' and this object").into()
}

/// Allows `get` of an object that is related to the node.
///
/// Upstream: `authorizeGet`.
fn allow_get(node: &str, attributes: &Attributes<'_>, is_related: impl Fn() -> bool) -> Decision {
    allow_if(attributes.verb == "get", "can only get individual resources of this type")?;
    allow_if(attributes.subresource.is_empty(), "cannot get subresource")?;
    allow_related(node, attributes, is_related)
}

/// Allows reads of a namespaced object that is related to the node.
///
/// Upstream: `authorizeReadNamespacedObject`.
fn allow_read_namespaced(
    node: &str,
    attributes: &Attributes<'_>,
    is_related: impl Fn() -> bool,
) -> Decision {
    allow_if(has_verb(attributes, READ_VERBS), "can only read resources of this type")?;
    allow_if(attributes.subresource.is_empty(), "cannot read subresource")?;
    let has_namespace = !attributes.namespace.is_empty();
    allow_if(has_namespace, "can only read namespaced object of this type")?;
    allow_related(node, attributes, is_related)
}

/// Allows a kubelet to get the ServiceAccounts of its pods, and to create tokens for them.
///
/// Upstream: `authorizeServiceAccount`, `authorizeCreateToken`.
fn allow_service_account(
    node: &str,
    attributes: &Attributes<'_>,
    is_related: impl Fn() -> bool,
) -> Decision {
    if attributes.verb == "get" && attributes.subresource.is_empty() {
        return allow_read_namespaced(node, attributes, is_related);
    }
    let is_for_one_account = attributes.verb == "create" && !attributes.name.is_empty();
    allow_if(is_for_one_account, "can only create tokens for individual service accounts")?;
    let is_for_token = attributes.subresource == "token";
    allow_if(is_for_token, "can only create token subresource of serviceaccount")?;
    is_related().then_some(()).ok_or_else(|| no_relationship(node))
}

/// Allows a kubelet to access its node's lease.
///
/// Upstream: `authorizeLease`.
fn lease(node: &str, attributes: &Attributes<'_>) -> Decision {
    let why = "can only get, create, update, patch, or delete a node lease";
    allow_if(has_verb(attributes, OWN_OBJECT_VERBS), why)?;
    let why = "can only access leases in the \"kube-node-lease\" system namespace";
    allow_if(attributes.namespace == LEASE_NAMESPACE, why)?;
    let why = "can only access node lease with the same name as the requesting node";
    allow_if(is_own(node, attributes), why)
}

/// Allows a kubelet to access its node's CSINode, but not the status: the feature gate `CSIVolumeHealth` is off.
///
/// Upstream: `authorizeCSINode`.
fn csi_node(node: &str, attributes: &Attributes<'_>) -> Decision {
    let why = match attributes.subresource {
        "" => "can only get, create, update, patch, or delete a CSINode",
        "status" => return Err("CSINode status access requires CSIVolumeHealth feature".into()),
        _ => return Err("cannot authorize CSINode subresources".into()),
    };
    allow_if(has_verb(attributes, OWN_OBJECT_VERBS), why)?;
    let why = "can only access CSINode with the same name as the requesting node";
    allow_if(is_own(node, attributes), why)
}

/// Returns whether the request is for the object with the node's name. Every creation counts, because the authorizer
/// does not know the new object's name.
fn is_own(node: &str, attributes: &Attributes<'_>) -> bool {
    attributes.verb == "create" || attributes.name == node
}

/// Allows a kubelet to read its own Node, and to write any Node. The NodeRestriction plug-in limits the writes.
///
/// Upstream: `authorizeNode`.
fn own_node(node: &str, attributes: &Attributes<'_>) -> Decision {
    match (attributes.subresource, attributes.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match attributes.name {
            name if name == node => Ok(()),
            "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => Err(format!("node '{node}' cannot read '{name}', only its own Node object")),
        }
        .map_err(Cow::from),
        _ => Err("".into()),
    }
}

/// Allows a kubelet to read pods on its node, to list pods if the field selector names the node, and to write any pod.
/// The NodeRestriction plug-in limits the writes.
///
/// Upstream: `authorizePod`.
fn pod(store: &Store, node: &str, attributes: &Attributes<'_>) -> Decision {
    let is_on_node = || {
        names_node(store, node, "/pods", &format!("{}/{}", attributes.namespace, attributes.name))
    };
    match (attributes.subresource, attributes.verb) {
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
            Ok(())
        }
        ("", "get") => allow_get(node, attributes, is_on_node),
        ("", "list" | "watch") if selects_node(attributes, node) => Ok(()),
        ("", "list" | "watch") if !attributes.name.is_empty() => {
            allow_related(node, attributes, is_on_node)
        }
        ("", "list" | "watch") => {
            Err("can only list/watch pods with spec.nodeName field selector".into())
        }
        _ => Err("".into()),
    }
}

/// Allows a kubelet to access its node's ResourceSlices, and to list them if the field selector names the node.
///
/// Upstream: `authorizeResourceSlice`.
fn resource_slice(store: &Store, node: &str, attributes: &Attributes<'_>) -> Decision {
    allow_if(attributes.subresource.is_empty(), "cannot authorize ResourceSlice subresources")?;
    match attributes.verb {
        "create" => Ok(()),
        "get" | "update" | "patch" | "delete" => allow_related(node, attributes, || {
            names_node(store, node, "resource.k8s.io/resourceslices", attributes.name)
        }),
        "list" | "watch" | "deletecollection" => {
            let why =
                "can only list/watch/deletecollection resourceslices with nodeName field selector";
            allow_if(selects_node(attributes, node), why)
        }
        _ => Err("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                  delete, deletecollection"
            .into()),
    }
}

/// Allows a kubelet to create PodCertificateRequests, to get those that name its node, and to list them if the field
/// selector names the node.
///
/// Upstream: `authorizePodCertificateRequest`.
fn pod_certificate_request(store: &Store, node: &str, attributes: &Attributes<'_>) -> Decision {
    let why = "nodes may not access the status subresource of PodCertificateRequests";
    allow_if(attributes.subresource.is_empty(), why)?;
    let key = || format!("{}/{}", attributes.namespace, attributes.name);
    match attributes.verb {
        "create" => Ok(()),
        "get" => allow_related(node, attributes, || {
            names_node(store, node, "certificates.k8s.io/podcertificaterequests", &key())
        }),
        "list" | "watch" => {
            let why = "can only list/watch podcertificaterequests with nodeName field selector";
            allow_if(selects_node(attributes, node), why)
        }
        verb => Err(format!("nodes may not {verb} podcertificaterequests").into()),
    }
}

/// Returns whether the field selector requires `spec.nodeName` to be the node.
fn selects_node(attributes: &Attributes<'_>, node: &str) -> bool {
    attributes.field_selector.requires_equal("spec.nodeName", node)
}

/// Returns whether the stored object names the node in `spec.nodeName`.
fn names_node(store: &Store, node: &str, resource_prefix: &str, key: &str) -> bool {
    store
        .get(resource_prefix, key)
        .is_some_and(|entry| text(&decoded(&entry), "spec.nodeName") == node)
}

/// Returns the stored object; null if it cannot be decoded.
fn decoded(entry: &Entry) -> Value {
    entry.decode().unwrap_or_default()
}

/// Returns whether a pod on the node refers to the object.
fn is_used_on_node(store: &Store, node: &str, attributes: &Attributes<'_>) -> bool {
    !attributes.namespace.is_empty()
        && is_used_by_a_pod(store, node, attributes.namespace, attributes.resource, attributes.name)
}

/// Returns whether a pod on the node refers to the object with this resource, namespace and name.
fn is_used_by_a_pod(
    store: &Store,
    node: &str,
    namespace: &str,
    resource: &str,
    name: &str,
) -> bool {
    !name.is_empty()
        && store
            .within("/pods", namespace)
            .iter()
            .any(|entry| is_on(entry, node) && refers_to(&decoded(entry), resource, name))
}

/// Returns whether a stored pod is on the node. It reads the selectable fields that the store keeps for the pod,
/// because decoding every pod of a namespace would be slow.
fn is_on(pod: &Entry, node: &str) -> bool {
    /// Index of `spec.nodeName` among the selectable fields of pods.
    static NODE_NAME: LazyLock<Option<usize>> = LazyLock::new(|| {
        let fields = strategy::of("", "pods").selectable_fields("");
        fields.iter().position(|field| *field == "spec.nodeName")
    });
    NODE_NAME.is_some_and(|field| pod.selection.field(field) == node)
}

/// Returns whether the PersistentVolume is bound to a claim that a pod on the node uses.
fn is_volume_of_pod(store: &Store, node: &str, name: &str) -> bool {
    let Some(entry) = store.get("/persistentvolumes", name) else { return false };
    let volume = decoded(&entry);
    let namespace = text(&volume, "spec.claimRef.namespace");
    let claim_name = text(&volume, "spec.claimRef.name");
    !namespace.is_empty()
        && is_used_by_a_pod(store, node, namespace, "persistentvolumeclaims", claim_name)
}

/// Returns whether a pod refers to the object. References of mirror pods do not count, because the kubelet creates
/// these pods itself and could let them refer to any object.
fn refers_to(pod: &Value, resource: &str, name: &str) -> bool {
    let is_mirror = object(pod, "metadata.annotations")
        .is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION));
    !is_mirror && has_reference(pod, resource, &|referred| referred == name)
}

/// Returns whether a pod, mirror or not, refers to any object of a resource.
///
/// Upstream: `VisitPodSecretNames`, `VisitPodConfigmapNames`.
pub(crate) fn refers_to_any(pod: &Value, resource: &str) -> bool {
    has_reference(pod, resource, &|referred| !referred.is_empty())
}

/// Returns whether the pod refers to an object of the resource whose name `matches` accepts.
fn has_reference(pod: &Value, resource: &str, matches: &dyn Fn(&str) -> bool) -> bool {
    let volumes = list(pod, "spec.volumes");
    match resource {
        "secrets" => {
            let pull_secrets = list(pod, "spec.imagePullSecrets");
            pull_secrets.iter().any(|secret| matches(text(secret, "name")))
                || is_in_environment(pod, &SECRET_SOURCES, matches)
                || volumes.iter().any(|volume| uses_secret(volume, matches))
        }
        "configmaps" => {
            is_in_environment(pod, &CONFIG_MAP_SOURCES, matches)
                || volumes.iter().any(|volume| {
                    matches(text(volume, "configMap.name"))
                        || is_projected(volume, "configMap", matches)
                })
        }
        "persistentvolumeclaims" => volumes.iter().any(|volume| {
            // Name of the claim that the ephemeral volume controller creates for the pod.
            let ephemeral_claim =
                || format!("{}-{}", text(pod, "metadata.name"), text(volume, "name"));
            matches(text(volume, "persistentVolumeClaim.claimName"))
                || volume.get("ephemeral").is_some() && matches(&ephemeral_claim())
        }),
        "serviceaccounts" => matches(text(pod, "spec.serviceAccountName")),
        "resourceclaims" => {
            let from_templates = list(pod, "status.resourceClaimStatuses");
            let existing = list(pod, "spec.resourceClaims");
            from_templates
                .iter()
                .chain(existing)
                .any(|claim| matches(text(claim, "resourceClaimName")))
                || matches(text(pod, "status.extendedResourceClaimStatus.resourceClaimName"))
        }
        _ => false,
    }
}

/// Paths to the name of a referenced object in a container's environment.
struct EnvironmentSources {
    /// Path in an item of `env`.
    variable: &'static str,
    /// Path in an item of `envFrom`.
    all_keys: &'static str,
}

const SECRET_SOURCES: EnvironmentSources =
    EnvironmentSources { variable: "valueFrom.secretKeyRef.name", all_keys: "secretRef.name" };
const CONFIG_MAP_SOURCES: EnvironmentSources = EnvironmentSources {
    variable: "valueFrom.configMapKeyRef.name",
    all_keys: "configMapRef.name",
};

/// Returns whether the `env` or `envFrom` of a container refers to an object whose name `matches` accepts.
fn is_in_environment(
    pod: &Value,
    sources: &EnvironmentSources,
    matches: &dyn Fn(&str) -> bool,
) -> bool {
    let lists = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];
    let mut containers = lists.into_iter().flat_map(|field| list(pod, field));
    containers.any(|container| {
        list(container, "env").iter().any(|variable| matches(text(variable, sources.variable)))
            || list(container, "envFrom")
                .iter()
                .any(|source| matches(text(source, sources.all_keys)))
    })
}

/// Returns whether a projected volume refers to an object whose name `matches` accepts. `kind` is the field of the
/// source.
fn is_projected(volume: &Value, kind: &str, matches: &dyn Fn(&str) -> bool) -> bool {
    let path = format!("{kind}.name");
    list(volume, "projected.sources").iter().any(|source| matches(text(source, &path)))
}

/// Returns whether a volume refers to a Secret whose name `matches` accepts. Each kind of volume source names its
/// Secret in one of three fields.
fn uses_secret(volume: &Value, matches: &dyn Fn(&str) -> bool) -> bool {
    let mut sources = volume.as_object().into_iter().flat_map(|volume| volume.values());
    is_projected(volume, "secret", matches)
        || sources.any(|source| {
            ["secretName", "secretRef.name", "nodePublishSecretRef.name"]
                .into_iter()
                .any(|field| matches(text(source, field)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_found_in_every_field_of_a_pod_but_not_in_mirror_pods() {
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
        mirror["metadata"]["annotations"] = json!({MIRROR_ANNOTATION: "x"});
        for (resource, names) in table {
            for name in names {
                assert!(refers_to(&pod, resource, name), "{resource} {name}");
                assert!(!refers_to(&mirror, resource, name), "{resource} {name}");
            }
            for (other, names) in table.into_iter().filter(|(other, _)| *other != resource) {
                assert!(
                    names.iter().all(|name| !refers_to(&pod, resource, name)),
                    "{resource} {other}"
                );
            }
            assert!(!refers_to(&pod, resource, "another"));
        }
    }

    #[tokio::test]
    async fn pods_of_other_nodes_are_not_decoded() {
        use crate::registry;
        use crate::store::{Encoded, Expect, SelectionAttributes};
        let store = Store::in_memory(registry::INDEXED_RESOURCES);
        // The selectable field and the object name different nodes, to show which of the two the authorizer reads.
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
        let uses = |name: &str| is_used_by_a_pod(&store, "n1", "ns", "secrets", name);
        assert_eq!(["a", "b", "c", "d"].map(uses), [true, false, true, false]);
        assert!(!is_used_by_a_pod(&store, "n1", "other", "secrets", "a"));
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
