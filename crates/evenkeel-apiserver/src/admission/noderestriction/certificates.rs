//! Certificate requests: a node requests certificates for itself and for its pods.

use serde_json::Value;

use super::pods::is_mirror;
use super::write::{Refusal, Write};
use crate::admission::attributes::Operation;
use crate::admission::certificates::common_names;
use crate::auth::Attributes;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{list, text};

const SIGNERS: [&str; 2] =
    ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// Checks that a kubelet's certificate request names the requesting node.
///
/// Upstream: `admitCSR`.
pub(super) fn signing(write: &Write<'_>) -> Result<(), Refusal> {
    let request = write.object;
    if write.operation != Operation::Create || !SIGNERS.contains(&text(request, "spec.signerName"))
    {
        return Ok(());
    }
    let Some(names) = common_names(text(request, "spec.request")) else {
        return Err("unable to parse csr: PEM block type must be CERTIFICATE REQUEST".into());
    };
    let own = format!("system:node:{}", write.node);
    if names.is_empty() || names.iter().any(|name| *name != own) {
        return Err(format!("can only create a node CSR with CN={own}").into());
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
    let shown = quote(&format!("{}/{}", write.cx.namespace, spec("podName")));
    node(write, &shown)?;
    let found = write.pod(spec("podName"));
    let pod = found.map_err(|refusal| retrieving("pod", &shown, refusal))?;
    let (given, uid) = (spec("podUID"), text(&pod, "metadata.uid"));
    if given != uid {
        let (given, uid) = (quote(given), quote(uid));
        return Err(stale(format!(
            "PodCertificateRequest for pod {shown} contains pod UID ({given}) which differs from running pod {uid}"
        )));
    }
    if text(&pod, "spec.nodeName") != write.node {
        let node = write.quoted_node();
        return Err(format!(
            "pod {shown} is not running on node {node} named in the PodCertificateRequest"
        )
        .into());
    }
    if is_mirror(&pod) {
        return Err(format!("pod {shown} is a mirror pod").into());
    }
    account(write, &pod, &shown)?;
    signer(write, &pod, &shown)
}

/// Returns a 500 instead of a 403, so that the kubelet retries: the server may not have observed the object yet.
fn stale(why: String) -> Refusal {
    Refusal::Other(StatusError::plain_internal(why))
}

fn retrieving(kind: &str, shown: &str, refusal: Refusal) -> Refusal {
    let why = match refusal {
        Refusal::Forbidden(why) => why,
        Refusal::Other(error) => error.message().to_owned(),
    };
    stale(format!("while retrieving {kind} {shown} named in the PodCertificateRequest: {why}"))
}

/// Checks that the request names the requesting node and its stored UID.
fn node(write: &Write<'_>, shown: &str) -> Result<(), Refusal> {
    let spec = |field: &str| text(write.object, &format!("spec.{field}"));
    let (named, own) = (quote(spec("nodeName")), write.quoted_node());
    if spec("nodeName") != write.node {
        return Err(format!(
            "PodCertificateRequest.Spec.NodeName={named}, which is not the requesting node {own}"
        )
        .into());
    }
    let found = write.stored_object("nodes", "node", "", write.node);
    let node = found.map_err(|refusal| retrieving("node", &named, refusal))?;
    let uid = text(&node, "metadata.uid");
    if spec("nodeUID") != uid {
        let (given, uid) = (quote(spec("nodeUID")), quote(uid));
        return Err(stale(format!(
            "PodCertificateRequest for pod {shown} names node UID {given}, inconsistent with the running node ({uid})"
        )));
    }
    Ok(())
}

/// Checks that the request names the pod's service account and its stored UID.
fn account(write: &Write<'_>, pod: &Value, shown: &str) -> Result<(), Refusal> {
    let spec = |field: &str| text(write.object, &format!("spec.{field}"));
    let (given, own) = (spec("serviceAccountName"), text(pod, "spec.serviceAccountName"));
    if given != own {
        let (given, own) = (quote(given), quote(own));
        return Err(format!("PodCertificateRequest for pod {shown} contains serviceAccountName ({given}) that differs from running pod ({own})").into());
    }
    let namespace = write.cx.namespace;
    let place = quote(&format!("{namespace}/{given}"));
    let found = write.stored_object("serviceaccounts", "serviceaccount", namespace, given);
    let account = found.map_err(|refusal| retrieving("service account", &place, refusal))?;
    let uid = text(&account, "metadata.uid");
    if spec("serviceAccountUID") != uid {
        let (given, uid) = (quote(spec("serviceAccountUID")), quote(uid));
        return Err(stale(format!(
            "PodCertificateRequest for pod {shown} names service account UID {given}, which differs from the running service account ({uid})"
        )));
    }
    Ok(())
}

/// Checks that the pod mounts certificates of the signer, or that the node has an explicit permission.
///
/// Upstream: `validateNodePodCertificateSigner`.
fn signer(write: &Write<'_>, pod: &Value, shown: &str) -> Result<(), Refusal> {
    let signer = text(write.object, "spec.signerName");
    let mounted = list(pod, "spec.volumes").iter().any(|volume| {
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
    if mounted || cx.allows(&attributes) {
        return Ok(());
    }
    let (signer, user) = (quote(signer), &cx.user.name);
    Err(format!("signer {signer} not found in the volumes of pod {shown}, {user} is not authorized to request certificates of this signer").into())
}
