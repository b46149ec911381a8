//! Requests that may be approved, and the required permissions. Upstream: `sarapprove.go`.

use crate::certificates::{
    SigningRequest, has, issued, kubelet,
    request::{Request, RequestError},
};
use evenkeel_runtime::introspect::Description;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use serde_json::{Value, json};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// A permission with which a request is approved. Upstream: `csrRecognizer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Right {
    /// Sub-resource of `certificatesigningrequests` that the requester must be allowed to create.
    pub(super) subresource: &'static str,
    /// Message of the approval.
    message: &'static str,
}

/// Permission to renew one's own certificate. Upstream: `selfnodeclient`.
const OWN: Right = Right {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};

/// Permission to get any node's certificate. Upstream: `nodeclient`.
const ANY: Right = Right {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

/// Returns the permissions of which one suffices, in order; none for other requests or decided ones. Upstream:
/// `recognizers`.
pub(super) fn rights(request: &SigningRequest) -> Result<Vec<Right>, RequestError> {
    if issued(request).is_some() || has(request, "Approved") || has(request, "Denied") {
        return Ok(Vec::new());
    }
    let asked = Request::from_pem(&request.spec.request.0)?;
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    if request.spec.signer_name != SIGNER || kubelet::client_error(&asked, usages).is_some() {
        return Ok(Vec::new());
    }
    let is_own = request.spec.username.as_deref().unwrap_or_default() == asked.subject.common_name;
    Ok(if is_own { vec![OWN, ANY] } else { vec![ANY] })
}

/// Returns the SubjectAccessReview of the requester.
pub(super) fn review(request: &SigningRequest, right: Right) -> Value {
    let spec = &request.spec;
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
            "resourceAttributes": {
                "group": "certificates.k8s.io", "version": "*", "resource": "certificatesigningrequests",
                "subresource": right.subresource, "verb": "create",
            },
        },
    })
}

/// Returns the approved request. Upstream: `appendApprovalCondition`.
pub(super) fn approved(request: &SigningRequest, right: Right) -> CertificateSigningRequest {
    let mut request: CertificateSigningRequest = (**request).clone();
    request.metadata.managed_fields = None;
    let conditions = request.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some("AutoApproved".to_owned()),
        message: Some(right.message.to_owned()),
        ..CertificateSigningRequestCondition::default()
    });
    request
}

/// Describes the request, and the next action.
pub(super) fn describe(request: &SigningRequest) -> (Description, Vec<String>) {
    let mut description = Description::new();
    let would = match rights(request) {
        Err(error) => {
            description.fact("request", error.to_string());
            Vec::new()
        }
        Ok(rights) => rights
            .iter()
            .map(|right| {
                format!(
                    "approve it if {} may create {}",
                    request.spec.username.as_deref().unwrap_or("nobody"),
                    right.subresource
                )
            })
            .collect(),
    };
    (description, would)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{certificates::request::tests::pem, fixtures::object};
    use base64::prelude::*;

    fn request(signer: &str, user: &str, organization: &str, status: &Value) -> SigningRequest {
        let pem = pem(organization, "system:node:a", &[]);
        object(&json!({
            "metadata": {"name": "a"},
            "spec": {
                "request": BASE64_STANDARD.encode(pem), "signerName": signer, "username": user, "groups": ["g"],
                "usages": ["digital signature", "client auth"],
            },
            "status": status,
        }))
    }

    #[test]
    fn only_what_nodes_may_ask_for_is_looked_into() {
        let (nodes, none) = ("system:nodes", json!({}));
        let table: [(SigningRequest, &[Right]); 7] = [
            (request(SIGNER, "system:node:a", nodes, &none), &[OWN, ANY]),
            (request(SIGNER, "bootstrap", nodes, &none), &[ANY]),
            (request(SIGNER, "bootstrap", "others", &none), &[]),
            (request("kubernetes.io/kubelet-serving", "system:node:a", nodes, &none), &[]),
            (
                request(
                    SIGNER,
                    "bootstrap",
                    nodes,
                    &json!({"conditions": [{"type": "Denied", "status": "True"}]}),
                ),
                &[],
            ),
            (
                request(
                    SIGNER,
                    "bootstrap",
                    nodes,
                    &json!({"conditions": [{"type": "Approved", "status": "True"}]}),
                ),
                &[],
            ),
            (request(SIGNER, "bootstrap", nodes, &json!({"certificate": "QQ=="})), &[]),
        ];
        for (number, (request, want)) in table.iter().enumerate() {
            assert_eq!(&*rights(request).unwrap(), *want, "{number}");
        }
    }

    #[test]
    fn the_server_is_asked_and_the_approval_says_why() {
        let request = request(SIGNER, "boot", "system:nodes", &json!({}));
        let review = review(&request, ANY);
        assert_eq!(review["spec"]["user"], "boot");
        assert_eq!(review["spec"]["resourceAttributes"]["subresource"], "nodeclient");
        let approved = approved(&request, OWN);
        let condition = &approved.status.unwrap().conditions.unwrap()[0];
        assert_eq!(
            (&*condition.type_, condition.reason.as_deref()),
            ("Approved", Some("AutoApproved"))
        );
        assert!(condition.message.as_ref().unwrap().contains("self kubelet"));
    }
}
