//! Live access reviews and approvals.

use super::plan::{self, Right};
use crate::{certificates::SigningRequest, wire};
use evenkeel_runtime::{
    cache::Cache,
    client::{Client, Metadata},
    controller::{Context, Error, Outcome},
    plan::Key,
};
use http::{Request, header};
use serde_json::Value;

/// Path of SubjectAccessReviews.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The requester lacks the permission. It may be granted later, so the request is retried.
#[derive(Debug, thiserror::Error)]
#[error("recognized csr {name:?} as [{tried}] but subject access review was not approved")]
struct NotAllowed {
    name: String,
    tried: String,
}

/// Caches of the approver.
pub(super) struct Approver {
    pub(super) requests: Cache<SigningRequest>,
}

impl Approver {
    pub(super) async fn reconcile(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(request) = self.requests.get("", &key.name) else { return Ok(Outcome::Settled) };
        let rights = plan::rights(&request)?;
        for right in &rights {
            if allowed(&context.env.client, &request, *right).await? {
                let (kind, body) =
                    (self.requests.kind(), wire::json(&plan::approved(&request, *right)));
                let client = &context.env.client;
                let made = client.update::<Metadata>(kind, "", &key.name, "approval", body).await?;
                context.wrote(key, kind, &made.meta.resource_version);
                return Ok(Outcome::Settled);
            }
        }
        if rights.is_empty() {
            return Ok(Outcome::Settled);
        }
        let tried = rights.iter().map(|right| right.subresource).collect::<Vec<_>>().join(" ");
        Err(NotAllowed { name: key.name.to_string(), tried }.into())
    }
}

async fn allowed(client: &Client, request: &SigningRequest, right: Right) -> Result<bool, Error> {
    let body = plan::review(request, right).to_string();
    let call = Request::post(REVIEWS)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(body.into())?;
    let answer = client.raw(call).await?;
    let review: Value = serde_json::from_slice(answer.body())?;
    Ok(review.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or(false))
}
