//! Requests that can be approved, and the required permissions. Upstream: `sarapprove.go`.
//!
//! The first step creates a SubjectAccessReview for the first permission. Each further step approves the
//! request, or reviews the next permission.

use crate::{
    certificates::{
        SigningRequest, has, issued, kubelet,
        request::{Request, RequestError},
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
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// A request, and the permissions for its approval; one is sufficient.
pub(super) struct Observed {
    request: Arc<SigningRequest>,
    rights: Result<Vec<Right>, RequestError>,
}

impl Observed {
    /// Observes the request.
    pub(super) fn new(request: Arc<SigningRequest>) -> Self {
        let rights = rights(&request);
        Self { request, rights }
    }
}

/// A permission with which a request is approved. Upstream: `csrRecognizer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Right {
    /// Sub-resource of `certificatesigningrequests` that the requester must be allowed to create.
    subresource: &'static str,
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

/// Reviews the first permission. Upstream: `handle`.
pub(super) fn plan(observed: &Observed) -> Plan {
    match &observed.rights {
        Err(error) => Plan::failure(error.to_string()),
        Ok(rights) => rights.first().map_or_else(Plan::nothing, |right| ask(observed, *right)),
    }
}

/// Returns the step after a review. A permission may be granted later, so a request without one is retried.
/// Upstream: `handle`.
pub(super) fn next(observed: &Observed, done: &Outcomes) -> Option<Plan> {
    let Ok(rights) = &observed.rights else { return None };
    let right = *rights.get(done.0.len().checked_sub(1)?)?;
    Some(match is_allowed(done.0.last()?)? {
        Err(message) => Plan::failure(message),
        Ok(true) => approve(observed, right),
        Ok(false) => rights
            .get(done.0.len())
            .map_or_else(|| not_allowed(observed, rights), |right| ask(observed, *right)),
    })
}

fn ask(observed: &Observed, right: Right) -> Plan {
    let review = LiveRead::review(REVIEWS, review(&observed.request, right).to_string());
    Plan::one(LiveRead { on_error: OnError::Abort, ..review })
}

/// Reads a review's reply; `None` if the outcome is another action's.
fn is_allowed(outcome: &Outcome) -> Option<Result<bool, String>> {
    let Some(reply) = &outcome.reply else {
        return outcome.error.as_ref().map(|error| Err(error.message.clone()));
    };
    let review: Result<Value, _> = serde_json::from_slice(reply.body());
    let allowed = |review: Value| review.pointer("/status/allowed").and_then(Value::as_bool);
    Some(review.map(|review| allowed(review) == Some(true)).map_err(|error| error.to_string()))
}

fn approve(observed: &Observed, right: Right) -> Plan {
    let request = &*observed.request;
    let body = wire::json(&approved(request, right));
    let update = Update::new(wire::target(request), body);
    Plan::one(Update { subresource: "approval", on_error: OnError::Abort, ..update })
}

fn not_allowed(observed: &Observed, rights: &[Right]) -> Plan {
    let tried = rights.iter().map(|right| right.subresource).collect::<Vec<_>>().join(" ");
    let name = observed.request.metadata.name.as_deref().unwrap_or_default();
    Plan::failure(format!(
        "recognized csr {name:?} as [{tried}] but subject access review was not approved"
    ))
}

/// Returns the permissions, in order, any of which is sufficient; none for other or decided requests. Upstream: `recognizers`.
fn rights(request: &SigningRequest) -> Result<Vec<Right>, RequestError> {
    if issued(request).is_some() || has(request, "Approved") || has(request, "Denied") {
        return Ok(Vec::new());
    }
    let content = Request::from_pem(&request.spec.request.0)?;
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    if request.spec.signer_name != SIGNER || kubelet::client_error(&content, usages).is_some() {
        return Ok(Vec::new());
    }
    let is_own =
        request.spec.username.as_deref().unwrap_or_default() == content.subject.common_name;
    Ok(if is_own { vec![OWN, ANY] } else { vec![ANY] })
}

/// Returns the SubjectAccessReview of the requester.
fn review(request: &SigningRequest, right: Right) -> Value {
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
fn approved(request: &SigningRequest, right: Right) -> CertificateSigningRequest {
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

/// Describes the conditions of an approval.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    match &observed.rights {
        Err(error) => description.fact("request", error),
        Ok(rights) => {
            let user = observed.request.spec.username.as_deref().unwrap_or("nobody");
            for right in rights {
                let subresource = right.subresource;
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
    fn rights_of_kubelet_client_requests() {
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
    fn subject_access_review_and_approved_condition() {
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

    fn replied(body: &Value) -> Outcome {
        Outcome { reply: Some(Reply::json(body.to_string())), ..Outcome::success() }
    }

    fn reviewed_subresource(plan: &Plan) -> Value {
        let [Action::Read(read)] = &plan.actions[..] else { panic!("{plan:?}") };
        assert_eq!((read.path(), read.on_error), (REVIEWS, OnError::Abort));
        let ReadRequest::Review { body, .. } = &read.request else { panic!("{read:?}") };
        let body: Value = serde_json::from_slice(body).unwrap();
        body["spec"]["resourceAttributes"]["subresource"].clone()
    }

    #[test]
    fn reviews_are_created_in_order() {
        let observed =
            Observed::new(Arc::new(request(SIGNER, "system:node:a", "system:nodes", &json!({}))));
        assert_eq!(reviewed_subresource(&plan(&observed)), "selfnodeclient");
        let (no, yes) = (json!({"status": {}}), json!({"status": {"allowed": true}}));
        let after = |done: &[Outcome]| next(&observed, &Outcomes(done.to_vec()));
        assert_eq!(reviewed_subresource(&after(&[replied(&no)]).unwrap()), "nodeclient");
        let refused = after(&[replied(&no), replied(&no)]).unwrap();
        assert_eq!(
            refused.error.unwrap().message,
            "recognized csr \"a\" as [selfnodeclient nodeclient] but subject access review was not approved"
        );
        for (done, message) in [
            (&[replied(&yes)][..], "self kubelet client certificate"),
            (&[replied(&no), replied(&yes)], "approving kubelet client certificate"),
        ] {
            let approval = after(done).unwrap();
            let [Action::Update(update)] = &approval.actions[..] else { panic!("{approval:?}") };
            assert_eq!((update.subresource, &*update.target.name), ("approval", "a"));
            assert!(String::from_utf8_lossy(&update.body).contains(message));
            let all: Vec<_> = done.iter().cloned().chain([Outcome::success()]).collect();
            assert_eq!(after(&all), None, "nothing follows the approval");
        }
        assert_eq!(after(&[]), None);
    }

    #[test]
    fn unreadable_request_or_failed_review_is_retried() {
        let observed = Observed::new(Arc::new(request(SIGNER, "boot", "system:nodes", &json!({}))));
        let missing = Failure {
            code: 404,
            reason: "NotFound".into(),
            message: "no reviews".into(),
            namespace_terminating: false,
        };
        let failed = next(&observed, &Outcomes(vec![Outcome::failure(missing)])).unwrap();
        assert_eq!(failed.error.unwrap().message, "no reviews");
        let broken: SigningRequest = object(&json!({
            "metadata": {"name": "a"}, "spec": {"request": "QQ==", "signerName": SIGNER},
        }));
        let observed = Observed::new(Arc::new(broken));
        assert!(plan(&observed).error.is_some_and(|error| !error.terminal));
        assert_eq!(next(&observed, &Outcomes::default()), None);
    }
}
