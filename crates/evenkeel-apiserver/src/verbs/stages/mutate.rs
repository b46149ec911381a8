//! Mutating admission.

use crate::admission::{self, policy, webhook};
use crate::verbs::attempt::{Attempt, Write};
use evenkeel_apimachinery::status::StatusError;

/// Lets plug-ins, policies and webhooks change the object, in this order.
pub(super) async fn mutate(
    write: &mut Write<'_>,
    attempt: &mut Attempt<'_>,
) -> Result<(), StatusError> {
    let (mut warnings, old) = (Vec::new(), attempt.old());
    let cx = write.context(attempt.name);
    admission::admit(&cx, &mut attempt.new, old)?;
    policy::mutate(&cx, &mut attempt.new, old)?;
    let mutated = webhook::mutate(&cx, &mut attempt.new, old, &mut warnings).await;
    write.request.warnings.add(warnings);
    mutated
}
