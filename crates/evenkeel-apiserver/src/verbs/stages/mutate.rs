//! Mutating admission: plug-ins, policies and webhooks that may change an object.

use serde_json::Value;

use crate::admission::Mutating;
use crate::verbs::attempt::Write;
use crate::verbs::create::set_namespace;
use crate::verbs::meta;
use evenkeel_apimachinery::status::StatusError;

/// Applies plug-ins, policies and webhooks to `new`. Returns whether a policy or a webhook changed it. `old` is the
/// stored object, or `None` for a create.
///
/// # Errors
/// A plug-in, a policy or a webhook refuses the object, or gives it another namespace than the request's.
///
/// This stage precedes `prepare`, which therefore resets fields that admission may not set.
pub(in crate::verbs) async fn mutate(
    write: &Write<'_>,
    admission: Mutating<'_>,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<bool, StatusError> {
    let mut warnings = Vec::new();
    let changed = admission.admit(new, old, &mut warnings).await;
    write.request.warnings.add(warnings);
    let after = " after mutating admission happens";
    write.request.warnings.add(meta::dedup_owner_references(new, after));
    let changed = changed?;
    if changed && write.request.resource().namespaced {
        set_namespace(write.request, new)?;
    }
    Ok(changed)
}
