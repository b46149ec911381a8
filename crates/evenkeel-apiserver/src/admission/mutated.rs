//! Prunes and defaults an object after a policy or a webhook has changed it.

use serde_json::Value;

use crate::api::Context;

/// Decodes an object again after a policy or a webhook has changed it. This prunes unknown fields and sets defaults.
pub(super) fn prune_and_default(cx: &Context<'_>, object: &mut Value) {
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
    // The strategy of the resource only has the defaults of its own kind.
    if *kind == resource.gvk {
        resource.strategy.default(object);
    }
}
