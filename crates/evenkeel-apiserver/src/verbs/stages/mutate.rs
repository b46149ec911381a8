//! Mutating admission: plug-ins, policies and webhooks that may change an object.

use serde_json::Value;

use crate::admission::attributes::Operation;
use crate::admission::{self, noderestriction, policy, webhook};
use crate::verbs::attempt::Write;
use evenkeel_apimachinery::status::StatusError;

/// Applies plug-ins, policies and webhooks to `new` in this order. Returns whether a policy or a webhook changed it.
/// `old` is the stored object, or `None` for a create. `name` is empty if the name will be generated.
///
/// It runs before `prepare`, so that admission cannot set fields that are the server's.
pub(in crate::verbs) async fn mutate(
    write: &mut Write<'_>,
    name: &str,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<bool, StatusError> {
    let cx = write.context(name);
    if old.is_none() {
        noderestriction::admit(&cx, Operation::Create, new, &Value::Null)?;
    }
    admission::admit(&cx, new, old)?;
    let mut warnings = Vec::new();
    let by_policies = policy::mutate(&cx, new, old)?;
    let by_webhooks = webhook::mutate(&cx, new, old, &mut warnings).await;
    write.request.warnings.add(warnings);
    Ok(by_webhooks? || by_policies)
}
