//! Checks of certificate requests: a node may request certificates for itself and for its pods.

use serde_json::Value;

use super::pods::is_mirror;
use super::write::{Refusal, Write};
use crate::admission::attributes::Operation;
use crate::admission::certificates::common_names;
use crate::auth::Attributes;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{list, text};

/// Signers of kubelets' certificates.
const KUBELET_SIGNERS: [&str; 2] =
    ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// Checks that a kubelet's certificate request names the requesting node.
///
/// Upstream: `admitCSR`.
pub(super) fn signing(write: &Write<'_>) -> Result<(), Refusal> {
    let request = write.object;
    if write.operation != Operation::Create
        || !KUBELET_SIGNERS.contains(&text(request, "spec.signerName"))
    {
        return Ok(());
    }
    let Some(names) = common_names(text(request, "spec.request")) else {
        return Err("unable to parse csr: PEM block type must be CERTIFICATE REQUEST".into());
    };
    let user = format!("system:node:{}", write.node);
    if names.is_empty() || names.iter().any(|name| *name != user) {
        return Err(format!("can only create a node CSR with CN={user}").into());
    }
    Ok(())
}

/// Checks that a PodCertificateRequest describes a pod that runs on the requesting node.
///
/// Upstream: `admitPodCertificateRequest`.
pub(super) fn pod(write: &Write<'_>) -> Result<(), Refusal> {
    if write.operation != Operation::Create {
        return Err(format!("unexpected operation {}", write.operation.as_str()).into());
    }
    if !write.cx.subresource.is_empty() {
        return Err(format!("unexpected subresource {}", write.cx.subresource).into());
    }
    let spec = |field: &str| text(write.object, &format!("spec.{field}"));
    let pod_name = quote(&format!("{}/{}", write.cx.namespace, spec("podName")));
    check_node(write, &pod_name)?;
    let pod = write.pod(spec("podName"));
    let pod = pod.map_err(|refusal| while_retrieving("pod", &pod_name, refusal))?;
    let (requested_uid, uid) = (spec("podUID"), text(&pod, "metadata.uid"));
    if requested_uid != uid {
        let (requested_uid, uid) = (quote(requested_uid), quote(uid));
        return Err(stale(format!(
            "PodCertificateRequest for pod {pod_name} contains pod UID ({requested_uid}) which differs from running pod {uid}"
        )));
    }
    if text(&pod, "spec.nodeName") != write.node {
        let node = write.quoted_node();
        return Err(format!(
            "pod {pod_name} is not running on node {node} named in the PodCertificateRequest"
        )
        .into());
    }
    if is_mirror(&pod) {
        return Err(format!("pod {pod_name} is a mirror pod").into());
    }
    check_service_account(write, &pod, &pod_name)?;
    check_signer(write, &pod, &pod_name)
}

/// Returns a 500 instead of a 403, so that the kubelet retries. The request may be about a newer object than the server
/// has observed.
fn stale(why: String) -> Refusal {
    Refusal::Other(StatusError::plain_internal(why))
}

/// Returns the refusal for an object that could not be read.
fn while_retrieving(kind: &str, name: &str, refusal: Refusal) -> Refusal {
    let why = match refusal {
        Refusal::Forbidden(why) => why,
        Refusal::Other(error) => error.message().to_owned(),
    };
    stale(format!("while retrieving {kind} {name} named in the PodCertificateRequest: {why}"))
}

/// Checks that the request names the requesting node and its stored UID.
fn check_node(write: &Write<'_>, pod_name: &str) -> Result<(), Refusal> {
    let spec = |field: &str| text(write.object, &format!("spec.{field}"));
    let (named, own) = (quote(spec("nodeName")), write.quoted_node());
    if spec("nodeName") != write.node {
        return Err(format!(
            "PodCertificateRequest.Spec.NodeName={named}, which is not the requesting node {own}"
        )
        .into());
    }
    let node = write.stored_object("nodes", "node", "", write.node);
    let node = node.map_err(|refusal| while_retrieving("node", &named, refusal))?;
    let uid = text(&node, "metadata.uid");
    if spec("nodeUID") != uid {
        let (requested_uid, uid) = (quote(spec("nodeUID")), quote(uid));
        return Err(stale(format!(
            "PodCertificateRequest for pod {pod_name} names node UID {requested_uid}, inconsistent with the running node ({uid})"
        )));
    }
    Ok(())
}

/// Checks that the request names the pod's service account and its stored UID.
fn check_service_account(write: &Write<'_>, pod: &Value, pod_name: &str) -> Result<(), Refusal> {
    let spec = |field: &str| text(write.object, &format!("spec.{field}"));
    let requested = spec("serviceAccountName");
    let actual = text(pod, "spec.serviceAccountName");
    if requested != actual {
        let (requested, actual) = (quote(requested), quote(actual));
        return Err(format!("PodCertificateRequest for pod {pod_name} contains serviceAccountName ({requested}) that differs from running pod ({actual})").into());
    }
    let namespace = write.cx.namespace;
    let account_name = quote(&format!("{namespace}/{requested}"));
    let found = write.stored_object("serviceaccounts", "serviceaccount", namespace, requested);
    let account =
        found.map_err(|refusal| while_retrieving("service account", &account_name, refusal))?;
    let uid = text(&account, "metadata.uid");
    if spec("serviceAccountUID") != uid {
        let (requested_uid, uid) = (quote(spec("serviceAccountUID")), quote(uid));
        return Err(stale(format!(
            "PodCertificateRequest for pod {pod_name} names service account UID {requested_uid}, which differs from the running service account ({uid})"
        )));
    }
    Ok(())
}

/// Checks that a volume of the pod uses certificates of the signer, or that a role permits the node to request them.
///
/// Upstream: `validateNodePodCertificateSigner`.
fn check_signer(write: &Write<'_>, pod: &Value, pod_name: &str) -> Result<(), Refusal> {
    let signer = text(write.object, "spec.signerName");
    let is_used_by_volume = list(pod, "spec.volumes").iter().any(|volume| {
        let mut sources = list(volume, "projected.sources").iter();
        sources.any(|source| text(source, "podCertificate.signerName") == signer)
    });
    let cx = write.cx;
    let attributes = Attributes {
        verb: "request-serviceaccounts-podcertificate-signer",
        group: "certificates.k8s.io",
        resource: &signer.replace('/', ":"),
        namespace: cx.namespace,
        name: text(write.object, "spec.serviceAccountName"),
        ..Attributes::default()
    };
    if is_used_by_volume || cx.allows(&attributes) {
        return Ok(());
    }
    let (signer, user) = (quote(signer), &cx.user.name);
    Err(format!("signer {signer} not found in the volumes of pod {pod_name}, {user} is not authorized to request certificates of this signer").into())
}
