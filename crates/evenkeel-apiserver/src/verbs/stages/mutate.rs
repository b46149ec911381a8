//! Mutating admission: plug-ins, policies and webhooks that may change an object.

use serde_json::Value;

use crate::admission::attributes::Operation;
use crate::admission::{self, noderestriction, policy, webhook};
use crate::verbs::attempt::Write;
use evenkeel_apimachinery::status::StatusError;

/// Lets plug-ins, policies and webhooks change `new`, in this order; returns whether a policy or a webhook did. `old` is the
/// stored object, none for a create. `name` is empty for a new object whose name is to be generated.
///
/// It comes before `prepare`, so that nobody here can set what is the server's alone.
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
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let mut warnings = Vec::new();
    let by_policies = policy::mutate(&cx, operation, new, old)?;
    let by_webhooks = webhook::mutate(&cx, operation, new, old, &mut warnings).await;
    write.request.warnings.add(warnings);
    Ok(by_webhooks? || by_policies)
}
