//! Printers of certificates.k8s.io.

use super::cells::{Cells, NONE, age, condition, name, text_or};
use super::duration::human;
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{int, object, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "CertificateSigningRequest" => certificate_signing_request,
        "ClusterTrustBundle" => {
            |printed| vec![json!(name(printed)), json!(text(printed, "spec.signerName"))]
        }
        "PodCertificateRequest" => pod_certificate_request,
        _ => return None,
    })
}

/// Returns the cells of a CertificateSigningRequest. The status combines approval, failure and issuance.
///
/// Upstream: `printCertificateSigningRequest`.
fn certificate_signing_request(printed: &PrintedObject<'_>) -> Cells {
    let mut status = if condition(printed, "Denied").is_some() {
        "Denied".to_owned()
    } else if condition(printed, "Approved").is_some() {
        "Approved".to_owned()
    } else {
        "Pending".to_owned()
    };
    if condition(printed, "Failed").is_some() {
        status.push_str(",Failed");
    }
    if !text(printed, "status.certificate").is_empty() {
        status.push_str(",Issued");
    }
    let duration = int(printed, "spec.expirationSeconds").map_or_else(|| NONE.to_owned(), human);
    vec![
        json!(name(printed)),
        json!(age(printed)),
        json!(text_or(printed, "spec.signerName", NONE)),
        json!(text(printed, "spec.username")),
        json!(duration),
        json!(status),
    ]
}

/// Returns the cells of a PodCertificateRequest. The state is that of its first condition, or `Pending`.
///
/// Upstream: `printPodCertificateRequest`.
fn pod_certificate_request(printed: &PrintedObject<'_>) -> Cells {
    let state = ["Denied", "Failed", "Issued"]
        .into_iter()
        .find(|kind| condition(printed, kind).is_some())
        .unwrap_or("Pending");
    let annotations =
        object(printed, "spec.unverifiedUserAnnotations").map_or(0, serde_json::Map::len);
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.podName")),
        json!(text(printed, "spec.serviceAccountName")),
        json!(text(printed, "spec.nodeName")),
        json!(text(printed, "spec.signerName")),
        json!(state),
        json!(annotations),
    ]
}
