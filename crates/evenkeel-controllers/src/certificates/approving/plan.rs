//! Requests that can be approved, and the required permissions. Upstream: `sarapprove.go`.
//!
//! The first step creates a SubjectAccessReview for the first permission. Each further step approves the
//! request, or reviews the next permission.

use crate::{
    certificates::{
        SigningRequest, has_condition, issued_certificate, kubelet,
        request::{ParsedRequest, RequestError},
    },
    wire,
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{LiveRead, OnError, Outcome, Outcomes, Plan, Update},
};
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Path of SubjectAccessReviews.
const REVIEWS_PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Signer of kubelets' client certificates. Upstream: `KubeAPIServerClientKubeletSignerName`.
const SIGNER_NAME: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// A request, and the permissions that suffice. The request is approved if the requester has at least one of them.
pub(super) struct Observed {
    request: Arc<SigningRequest>,
    permissions: Result<Vec<Permission>, RequestError>,
}

impl Observed {
    /// Observes the request.
    pub(super) fn new(request: Arc<SigningRequest>) -> Self {
        let permissions = permissions(&request);
        Self { request, permissions }
    }
}

/// A permission with which a request is approved. Upstream: `csrRecognizer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Permission {
    /// Sub-resource of `certificatesigningrequests` that the requester must be allowed to create.
    subresource: &'static str,
    /// Message of the approval.
    message: &'static str,
}

/// Permission of a node to renew its own certificate. Upstream: `selfnodeclient`.
const SELF_NODE_CLIENT: Permission = Permission {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};

/// Permission to get any node's certificate. Upstream: `nodeclient`.
const NODE_CLIENT: Permission = Permission {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

/// Reviews the first permission. Upstream: `handle`.
pub(super) fn plan(observed: &Observed) -> Plan {
    match &observed.permissions {
        Err(error) => Plan::failure(error.to_string()),
        Ok(permissions) => permissions
            .first()
            .map_or_else(Plan::nothing, |permission| create_review(observed, *permission)),
    }
}

/// Returns the step after a review. A permission may be granted later, so a request without one is retried.
/// Upstream: `handle`.
pub(super) fn next(observed: &Observed, outcomes: &Outcomes) -> Option<Plan> {
    let Ok(permissions) = &observed.permissions else { return None };
    let permission = *permissions.get(outcomes.0.len().checked_sub(1)?)?;
    Some(match review_result(outcomes.0.last()?)? {
        Err(message) => Plan::failure(message),
        Ok(true) => approve(observed, permission),
        Ok(false) => permissions.get(outcomes.0.len()).map_or_else(
            || not_approved_failure(observed, permissions),
            |permission| create_review(observed, *permission),
        ),
    })
}

/// Plans a SubjectAccessReview: does the requester have the permission?
fn create_review(observed: &Observed, permission: Permission) -> Plan {
    let review = LiveRead::review(
        REVIEWS_PATH,
        subject_access_review(&observed.request, permission).to_string(),
    );
    Plan::one(LiveRead { on_error: OnError::Abort, ..review })
}

/// Returns whether the review allows the access, or the error of the request. `None` if the outcome is not of a review.
fn review_result(outcome: &Outcome) -> Option<Result<bool, String>> {
    let Some(reply) = &outcome.reply else {
        return outcome.error.as_ref().map(|error| Err(error.message.clone()));
    };
    let review: Result<Value, _> = serde_json::from_slice(reply.body());
    Some(match review {
        Ok(review) => Ok(review["status"]["allowed"] == true),
        Err(error) => Err(error.to_string()),
    })
}

/// Approves the request because of this permission.
fn approve(observed: &Observed, permission: Permission) -> Plan {
    let request = &*observed.request;
    let body = wire::json(&with_approval(request, permission));
    let update = Update::new(wire::target(request), body);
    Plan::one(Update { subresource: "approval", on_error: OnError::Abort, ..update })
}

/// Returns the failure of a recognized request whose requester has none of the permissions.
fn not_approved_failure(observed: &Observed, permissions: &[Permission]) -> Plan {
    let subresources =
        permissions.iter().map(|permission| permission.subresource).collect::<Vec<_>>().join(" ");
    let name = observed.request.metadata.name.as_deref().unwrap_or_default();
    Plan::failure(format!(
        "recognized csr {name:?} as [{subresources}] but subject access review was not approved"
    ))
}

/// Returns the sufficient permissions, in the order of their reviews. There are none for requests of other signers or
/// subjects, and for requests that are approved, denied or issued. Upstream: `recognizers`.
fn permissions(request: &SigningRequest) -> Result<Vec<Permission>, RequestError> {
    if issued_certificate(request).is_some()
        || has_condition(request, "Approved")
        || has_condition(request, "Denied")
    {
        return Ok(Vec::new());
    }
    let parsed = ParsedRequest::from_pem(&request.spec.request.0)?;
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    if request.spec.signer_name != SIGNER_NAME || kubelet::client_error(&parsed, usages).is_some() {
        return Ok(Vec::new());
    }
    let is_own_certificate =
        request.spec.username.as_deref().unwrap_or_default() == parsed.subject.common_name;
    Ok(if is_own_certificate { vec![SELF_NODE_CLIENT, NODE_CLIENT] } else { vec![NODE_CLIENT] })
}

/// Returns the SubjectAccessReview of the requester.
fn subject_access_review(request: &SigningRequest, permission: Permission) -> Value {
    let spec = &request.spec;
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
            "resourceAttributes": {
                "group": "certificates.k8s.io", "version": "*", "resource": "certificatesigningrequests",
                "subresource": permission.subresource, "verb": "create",
            },
        },
    })
}

/// Returns the request with the condition `Approved`. Upstream: `appendApprovalCondition`.
fn with_approval(request: &SigningRequest, permission: Permission) -> CertificateSigningRequest {
    let mut request = wire::copy_for_update(&**request);
    let conditions = request.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some("AutoApproved".to_owned()),
        message: Some(permission.message.to_owned()),
        ..CertificateSigningRequestCondition::default()
    });
    request
}

/// Describes the conditions of an approval.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    match &observed.permissions {
        Err(error) => description.fact("request", error),
        Ok(permissions) => {
            let user = observed.request.spec.username.as_deref().unwrap_or("nobody");
            for permission in permissions {
                let subresource = permission.subresource;
                description.fact("approved if", format!("{user} may create {subresource}"));
            }
        }
    }
    description
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{certificates::request::tests::pem, fixtures::object};
    use base64::prelude::*;
    use evenkeel_runtime::plan::{Action, Failure, ReadRequest, Reply};

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
    fn only_pending_kubelet_client_requests_can_be_approved() {
        let (nodes, no_status) = ("system:nodes", json!({}));
        let table: [(SigningRequest, &[Permission]); 7] = [
            (
                request(SIGNER_NAME, "system:node:a", nodes, &no_status),
                &[SELF_NODE_CLIENT, NODE_CLIENT],
            ),
            (request(SIGNER_NAME, "bootstrap", nodes, &no_status), &[NODE_CLIENT]),
            (request(SIGNER_NAME, "bootstrap", "others", &no_status), &[]),
            (request("kubernetes.io/kubelet-serving", "system:node:a", nodes, &no_status), &[]),
            (
                request(
                    SIGNER_NAME,
                    "bootstrap",
                    nodes,
                    &json!({"conditions": [{"type": "Denied", "status": "True"}]}),
                ),
                &[],
            ),
            (
                request(
                    SIGNER_NAME,
                    "bootstrap",
                    nodes,
                    &json!({"conditions": [{"type": "Approved", "status": "True"}]}),
                ),
                &[],
            ),
            (request(SIGNER_NAME, "bootstrap", nodes, &json!({"certificate": "QQ=="})), &[]),
        ];
        for (number, (request, expected)) in table.iter().enumerate() {
            assert_eq!(&*permissions(request).unwrap(), *expected, "{number}");
        }
    }

    #[test]
    fn review_is_of_the_requester_and_approval_sets_the_condition() {
        let request = request(SIGNER_NAME, "boot", "system:nodes", &json!({}));
        let review = subject_access_review(&request, NODE_CLIENT);
        assert_eq!(review["spec"]["user"], "boot");
        assert_eq!(review["spec"]["resourceAttributes"]["subresource"], "nodeclient");
        let approved = with_approval(&request, SELF_NODE_CLIENT);
        let condition = &approved.status.unwrap().conditions.unwrap()[0];
        assert_eq!(
            (&*condition.type_, condition.reason.as_deref()),
            ("Approved", Some("AutoApproved"))
        );
        assert!(condition.message.as_ref().unwrap().contains("self kubelet"));
    }

    fn replied(body: &Value) -> Outcome {
        Outcome { reply: Some(Reply::json(body.to_string())), ..Outcome::success() }
    }

    fn reviewed_subresource(plan: &Plan) -> Value {
        let [Action::Read(read)] = &plan.actions[..] else { panic!("{plan:?}") };
        assert_eq!((read.path(), read.on_error), (REVIEWS_PATH, OnError::Abort));
        let ReadRequest::Review { body, .. } = &read.request else { panic!("{read:?}") };
        let body: Value = serde_json::from_slice(body).unwrap();
        body["spec"]["resourceAttributes"]["subresource"].clone()
    }

    #[test]
    fn reviews_are_created_in_order() {
        let observed = Observed::new(Arc::new(request(
            SIGNER_NAME,
            "system:node:a",
            "system:nodes",
            &json!({}),
        )));
        assert_eq!(reviewed_subresource(&plan(&observed)), "selfnodeclient");
        let (no, yes) = (json!({"status": {}}), json!({"status": {"allowed": true}}));
        let after = |outcomes: &[Outcome]| next(&observed, &Outcomes(outcomes.to_vec()));
        assert_eq!(reviewed_subresource(&after(&[replied(&no)]).unwrap()), "nodeclient");
        let denied = after(&[replied(&no), replied(&no)]).unwrap();
        assert_eq!(
            denied.error.unwrap().message,
            "recognized csr \"a\" as [selfnodeclient nodeclient] but subject access review was not approved"
        );
        for (outcomes, message) in [
            (&[replied(&yes)][..], "self kubelet client certificate"),
            (&[replied(&no), replied(&yes)], "approving kubelet client certificate"),
        ] {
            let approval = after(outcomes).unwrap();
            let [Action::Update(update)] = &approval.actions[..] else { panic!("{approval:?}") };
            assert_eq!((update.subresource, &*update.target.name), ("approval", "a"));
            assert!(String::from_utf8_lossy(&update.body).contains(message));
            let all: Vec<_> = outcomes.iter().cloned().chain([Outcome::success()]).collect();
            assert_eq!(after(&all), None, "nothing follows the approval");
        }
        assert_eq!(after(&[]), None);
    }

    #[test]
    fn unreadable_request_or_failed_review_is_retried() {
        let observed =
            Observed::new(Arc::new(request(SIGNER_NAME, "boot", "system:nodes", &json!({}))));
        let missing = Failure {
            code: 404,
            reason: "NotFound".into(),
            message: "no reviews".into(),
            namespace_terminating: false,
        };
        let failed = next(&observed, &Outcomes(vec![Outcome::failure(missing)])).unwrap();
        assert_eq!(failed.error.unwrap().message, "no reviews");
        let broken: SigningRequest = object(&json!({
            "metadata": {"name": "a"}, "spec": {"request": "QQ==", "signerName": SIGNER_NAME},
        }));
        let observed = Observed::new(Arc::new(broken));
        assert!(plan(&observed).error.is_some_and(|error| !error.terminal));
        assert_eq!(next(&observed, &Outcomes::default()), None);
    }
}
