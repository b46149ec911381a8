//! Preparation: sets the fields that only the server may set.

use crate::registry;
use crate::verbs::attempt::{Attempt, Write};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::is_empty;

/// Sets the fields that the server determines, and restores the fields that this request may not change.
///
/// Upstream: `rest.BeforeCreate` and `rest.BeforeUpdate`.
pub(super) fn prepare(write: &Write<'_>, attempt: &mut Attempt<'_>) -> Result<(), StatusError> {
    let cx = write.context(attempt.name);
    let strategy = &write.stored.strategy;
    let old = attempt.old();
    match old {
        Some(old) => strategy.prepare_for_update(&cx.strategy_context(), &mut attempt.new, old),
        None => {
            write.request.warnings.add(strategy.early_warnings(&attempt.new));
            let had_labels = !is_empty(&attempt.new, "metadata.labels");
            strategy.prepare_for_create(&cx.strategy_context(), &mut attempt.new)?;
            // Upstream stores a Job without the labels that its template got here. Each read adds them.
            attempt.is_normalized_later = !had_labels && !is_empty(&attempt.new, "metadata.labels");
        }
    }
    registry::allocate(&cx, &mut attempt.new, old)
}
