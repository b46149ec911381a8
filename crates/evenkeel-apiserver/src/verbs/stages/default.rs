//! Conversion and defaulting of objects.

use serde_json::Value;

use crate::verbs::attempt::Write;

/// Converts an object from the request's version to the storage version, and sets the kind's defaults. The defaults of
/// built-in kinds are in `evenkeel_kinds::defaults`, those of custom resources in the definition's schema.
pub(in crate::verbs) fn default(write: &Write<'_>, object: &mut Value) {
    if write.request.resource().converts() {
        write.stored.strategy.convert_in(&write.stored.gvk, object);
    }
    write.stored.strategy.default(object);
}
