//! Validating admission: plug-ins, policies, webhooks and quota.

use serde_json::Value;

use crate::admission::attributes::{Attributes, Operation};
use crate::admission::quota::QuotaUpdates;
use crate::admission::{self, policy, quota, webhook};
use crate::verbs::attempt::{Attempt, Write};
use evenkeel_apimachinery::status::StatusError;

/// Runs validating plug-ins, policies, webhooks and quota in this order. Returns the changes of quota usage.
pub(super) async fn admit(
    write: &mut Write<'_>,
    attempt: &Attempt<'_>,
) -> Result<QuotaUpdates, StatusError> {
    let old = attempt.old();
    let cx = write.context(attempt.name);
    // Add the warnings first: the client gets them even if a later stage refuses the request.
    let warnings = write.stored.strategy.warnings(&cx.strategy_context(), &attempt.new, old);
    write.request.warnings.add(warnings);
    admission::validate(&cx, &attempt.new, old)?;
    let mut warnings = admission::warnings(&cx, &attempt.new, old);
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let attributes = Attributes::new(&cx, operation, &attempt.new, old.unwrap_or(&Value::Null));
    let validated = match policy::validate(&attributes, &mut warnings).await {
        Ok(()) => webhook::validate(&attributes, &mut warnings).await,
        Err(error) => Err(error),
    };
    write.request.warnings.add(warnings);
    validated?;
    quota::evaluate(&cx, &attempt.new, old)
}
