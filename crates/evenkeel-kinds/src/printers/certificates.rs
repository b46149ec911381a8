//! Printers of certificates.k8s.io.

use super::cells::{Cells, NONE, age, condition, name, text_or};
use super::duration::human;
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{int, object, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "CertificateSigningRequest" => certificate_signing_request,
        "ClusterTrustBundle" => |o| vec![json!(name(o)), json!(text(o, "spec.signerName"))],
        "PodCertificateRequest" => pod_certificate_request,
        _ => return None,
    })
}

/// Upstream: `printCertificateSigningRequest`.
fn certificate_signing_request(o: &PrintedObject<'_>) -> Cells {
    let mut status = if condition(o, "Denied").is_some() {
        "Denied".to_owned()
    } else if condition(o, "Approved").is_some() {
        "Approved".to_owned()
    } else {
        "Pending".to_owned()
    };
    if condition(o, "Failed").is_some() {
        status.push_str(",Failed");
    }
    if !text(o, "status.certificate").is_empty() {
        status.push_str(",Issued");
    }
    let duration = int(o, "spec.expirationSeconds").map_or_else(|| NONE.to_owned(), human);
    vec![
        json!(name(o)),
        json!(age(o)),
        json!(text_or(o, "spec.signerName", NONE)),
        json!(text(o, "spec.username")),
        json!(duration),
        json!(status),
    ]
}

/// Upstream: `printPodCertificateRequest`.
fn pod_certificate_request(o: &PrintedObject<'_>) -> Cells {
    let state = ["Denied", "Failed", "Issued"]
        .into_iter()
        .find(|kind| condition(o, kind).is_some())
        .unwrap_or("Pending");
    let annotations = object(o, "spec.unverifiedUserAnnotations").map_or(0, serde_json::Map::len);
    vec![
        json!(name(o)),
        json!(text(o, "spec.podName")),
        json!(text(o, "spec.serviceAccountName")),
        json!(text(o, "spec.nodeName")),
        json!(text(o, "spec.signerName")),
        json!(state),
        json!(annotations),
    ]
}
