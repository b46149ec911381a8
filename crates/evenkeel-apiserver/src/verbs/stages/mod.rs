//! Stages of a write in order. Each stage is a module with a function of the same name. Creates have no old object;
//! updates, patches and applies have one.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Decode the body, with field validation; apply a patch to the current object | `decode::decode`, `patch::apply_patch` |
//! | Convert to the storage version and apply defaults | `default::default` |
//! | `Preconditions`: uid and resourceVersion | `write::check_preconditions`, `write::check_absent_preconditions` |
//! | Mutating admission: plug-ins, policies, webhooks; a new object has no uid and no generated name yet | `mutate::mutate` |
//! | `rest.FillObjectMetaSystemFields`, names for `generateName` | `write::create`, `write::create_with_generated_name` |
//! | `rest.BeforeCreate`, `rest.BeforeUpdate`: fields that the strategy sets; cluster IPs and node ports | `prepare::prepare` |
//! | Validation by the strategy, the schema and CEL rules; escalation checks | `validate::validate` |
//! | Validating admission: plug-ins, policies, webhooks; quotas last | `admit::admit` |
//! | `Storage.Create`, `GuaranteedUpdate`, with `BeginCreate`, `BeginUpdate` and their `FinishFunc` | `persist::persist`, `persist::transaction` |
//! | Convert to the request's version and encode | `encode::encode` |
//!
//! Upstream: `Store.Create` and `Store.Update` of `registry/generic/registry`.

mod admit;
mod decode;
mod default;
mod encode;
mod mutate;
mod persist;
mod prepare;
mod validate;

use super::attempt::{Attempt, AttemptError, Write, Written};

pub(super) use decode::decode;
pub(super) use default::{default, log_request_object};
pub(super) use encode::encode;
pub(super) use mutate::mutate;

/// Runs an attempt through the stages after mutating admission, from preparation to persistence.
pub(super) async fn run(
    write: &mut Write<'_>,
    mut attempt: Attempt<'_>,
) -> Result<Written, AttemptError> {
    prepare::prepare(write, &mut attempt)?;
    validate::validate(write, &mut attempt)?;
    let quotas = admit::admit(write, &attempt).await?;
    persist::persist(write, attempt, quotas).await
}
