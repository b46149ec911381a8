//! Checks of writes to Node objects: a kubelet may write its own Node, but neither its taints nor the labels that the
//! placement of pods relies on.

use std::collections::BTreeSet;

use serde_json::Value;

use super::write::{Refusal, Write};
use crate::admission::attributes::Operation;
use evenkeel_apimachinery::status::quote;
use evenkeel_apimachinery::value::{get, object, same_meaning};

/// Checks a node's write to a Node object.
///
/// Upstream: `admitNode`.
pub(super) fn admit(write: &Write<'_>) -> Result<(), Refusal> {
    let (node, new) = (write.quoted_node(), write.object);
    if write.cx.name != write.node {
        let requested = quote(write.cx.name);
        return Err(format!("node {node} is not allowed to modify node {requested}").into());
    }
    match write.operation {
        Operation::Create if get(new, "spec.configSource").is_some() => {
            Err(format!("node {node} is not allowed to create pods with a non-nil configSource")
                .into())
        }
        Operation::Create => match forbidden_labels(new, &Value::Null) {
            Some(labels) => {
                Err(format!("node {node} is not allowed to set the following labels: {labels}")
                    .into())
            }
            None => Ok(()),
        },
        Operation::Update => update(write),
        // Connections are not writes.
        Operation::Delete | Operation::Connect => Ok(()),
    }
}

/// Checks an update of the node's own object.
fn update(write: &Write<'_>) -> Result<(), Refusal> {
    let (node, new, old) = (write.quoted_node(), write.object, write.old);
    let is_changed = |path: &str| {
        let field = |object| get(object, path).cloned().unwrap_or_default();
        !same_meaning(&field(new), &field(old))
    };
    // The removal of the field is allowed, because an old kubelet drops it when it reports its status.
    if get(new, "spec.configSource").is_some() && is_changed("spec.configSource") {
        return Err(format!(
            "node {node} is not allowed to update configSource to a new non-nil configSource"
        )
        .into());
    }
    if is_changed("spec.taints") {
        return Err(format!("node {node} is not allowed to modify taints").into());
    }
    if is_changed("metadata.ownerReferences") {
        return Err(format!("node {node} is not allowed to modify ownerReferences").into());
    }
    match forbidden_labels(new, old) {
        Some(labels) => Err(format!("is not allowed to modify labels: {labels}").into()),
        None => Ok(()),
    }
}

/// Returns the changed labels that a node may not change, joined by commas; `None` without such labels.
///
/// Upstream: `getModifiedLabels`, `getForbiddenLabels`.
fn forbidden_labels(new: &Value, old: &Value) -> Option<String> {
    let [new, old] = [new, old].map(|node| object(node, "metadata.labels"));
    let keys: BTreeSet<&String> =
        [new, old].into_iter().flatten().flat_map(|labels| labels.keys()).collect();
    let changed = keys.into_iter().filter(|key| {
        new.and_then(|labels| labels.get(*key)) != old.and_then(|labels| labels.get(*key))
    });
    let forbidden: Vec<&str> =
        changed.map(String::as_str).filter(|key| is_forbidden(key)).collect();
    (!forbidden.is_empty()).then(|| forbidden.join(", "))
}

/// Labels of Kubernetes' own domains that a kubelet may set.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Returns whether a node may not change the label. Labels in `node-restriction.kubernetes.io` are reserved for
/// administrators. Other labels of Kubernetes' own domains are forbidden unless they are kubelet labels.
fn is_forbidden(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_in_domain = |parent: &str| {
        domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let is_kubelet_label = KUBELET_LABELS.contains(&key)
        || is_in_domain("kubelet.kubernetes.io")
        || is_in_domain("node.kubernetes.io");
    let is_kubernetes_label = is_in_domain("kubernetes.io") || is_in_domain("k8s.io");
    is_in_domain("node-restriction.kubernetes.io") || is_kubernetes_label && !is_kubelet_label
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_of_kubernetes_are_the_kubelets_or_forbidden() {
        for (key, forbidden) in [
            ("kubernetes.io/hostname", false),
            ("beta.kubernetes.io/arch", false),
            ("kubelet.kubernetes.io/x", false),
            ("a.kubelet.kubernetes.io/x", false),
            ("node.kubernetes.io/x", false),
            ("a.node.kubernetes.io/x", false),
            ("anode.kubernetes.io/x", true),
            ("node-role.kubernetes.io/control-plane", true),
            ("node-restriction.kubernetes.io/x", true),
            ("a.node-restriction.kubernetes.io/x", true),
            ("kubernetes.io/x", true),
            ("k8s.io/x", true),
            ("a.k8s.io/x", true),
            ("ak8s.io/x", false),
            ("example.com/x", false),
            ("x", false),
        ] {
            assert_eq!(is_forbidden(key), forbidden, "{key}");
        }
    }

    #[test]
    fn labels_count_when_they_come_change_or_go() {
        let node = |labels: Value| json!({"metadata": {"labels": labels}});
        let (a, b) = ("k8s.io/a", "k8s.io/b");
        for (new, old, expected) in [
            (json!({a: "1", b: "1", "c": "1"}), json!(null), Some("k8s.io/a, k8s.io/b")),
            (json!({a: "1"}), json!({a: "1"}), None),
            (json!({a: "1"}), json!({a: "2"}), Some(a)),
            (json!({}), json!({a: "2"}), Some(a)),
            (json!({"c": "1"}), json!({"d": "1"}), None),
        ] {
            assert_eq!(forbidden_labels(&node(new), &node(old)).as_deref(), expected);
        }
    }
}
