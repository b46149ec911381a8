//! Converts, prunes and defaults an object after a policy or a webhook has changed it.

use serde_json::Value;

use crate::api::Context;
use crate::custom::conversion;
use evenkeel_apimachinery::status::StatusError;

/// Returns an object that a policy or a webhook has changed, in the version that admission began with: pruned, and with
/// the defaults of the version in which it was changed. `is_converted` is whether that is another version.
///
/// # Errors
/// The conversion webhook fails.
pub(super) async fn readmitted(
    cx: &Context<'_>,
    mut changed: Value,
    is_converted: bool,
) -> Result<Value, StatusError> {
    let resource = cx.resource;
    match &resource.custom {
        Some(custom) if is_converted => {
            let mut objects = conversion::read(cx.api, custom, vec![changed]).await?;
            return Ok(objects.pop().unwrap_or_default());
        }
        None if is_converted => resource.strategy.convert_in(&resource.gvk, &mut changed),
        _ => {}
    }
    prune_and_default(cx, &mut changed);
    Ok(changed)
}

/// Decodes an object again after a policy or a webhook has changed it. This prunes unknown fields and sets defaults.
fn prune_and_default(cx: &Context<'_>, object: &mut Value) {
    let resource = cx.resource;
    if let Some(custom) = &resource.custom {
        evenkeel_apimachinery::value::set(object, "apiVersion", &*resource.api_version);
        custom.definition.prune_and_default(object);
        return;
    }
    let kind = cx.object_kind();
    if let Some(schema) = resource.schema(kind) {
        *object = evenkeel_apimachinery::patch::decode_again(&schema, kind, object);
    }
    // The strategy of the resource knows the defaults of its own kind only.
    if *kind == resource.gvk {
        resource.strategy.default(object);
    }
}
