//! Applies a mutating policy to an object, in the version that the policy matches. The conversion to this version may
//! call a webhook.

use serde_json::Value;

use super::authorizer::RequestAuthorizer;
use super::compiled::Policy;
use super::evaluate::Bindings;
use super::mutate::{Mutated, PolicyError, mutate_with_params};
use super::{matching, params};
use crate::admission::attributes::{Attributes, Operation};
use crate::admission::versioned::readmitted;
use crate::api::Context;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::text;

/// Applies a policy's mutations for one binding. A mutation with an error changes nothing; later mutations still run.
///
/// Upstream: `policyDispatcher.Dispatch`, `dispatchInvocations`.
pub(super) async fn apply(
    cx: &Context<'_>,
    operation: Operation,
    policy: &Policy,
    binding: &Value,
    object: &mut Value,
    old: Option<&Value>,
    authorizer: &RequestAuthorizer<'_>,
) -> Result<Mutated, StatusError> {
    let mut mutated = Mutated { calls: Vec::new(), errors: Vec::new() };
    let null = Value::Null;
    let request = Attributes::new(cx, operation, object, old.unwrap_or(&null));
    let constraints = &policy.document["spec"]["matchConstraints"];
    let Some(matched) = matching::matches(&request, constraints) else { return Ok(mutated) };
    if !matching::is_bound(&request, binding) {
        return Ok(mutated);
    }
    let name = text(binding, "metadata.name");
    let denied = |error: String| {
        format!("policy '{}' with binding '{name}' denied request: {error}", policy.name)
    };
    let params_list = match params::of(&request, policy, binding) {
        Ok(params_list) => params_list,
        Err(error) => {
            let message = denied(format!("failed to configure binding: {error}"));
            mutated.errors.push(PolicyError { message, is_invalid: false });
            return Ok(mutated);
        }
    };
    let converted = request.converted(matched.version(&request)).await?;
    let converted_request = converted.as_ref().map(|converted| converted.attributes(&request));
    let versioned_request = converted_request.as_ref().unwrap_or(&request);
    let mut current = versioned_request.object.clone();
    for params in params_list {
        let bindings = Bindings::new(versioned_request, params, authorizer);
        let changed =
            mutate_with_params(versioned_request, policy, &bindings, &mut current, &mut |error| {
                mutated.errors.push(PolicyError { message: denied(error), is_invalid: true });
            });
        mutated.calls.extend(changed);
    }
    if current != *versioned_request.object {
        *object = readmitted(cx, current, converted.is_some()).await?;
    }
    Ok(mutated)
}
