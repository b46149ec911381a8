//! Conversion and defaults.

use serde_json::Value;

use crate::verbs::attempt::Write;

/// Converts an object from the request's version to the stored one, and fills in the kind's defaults: those of built-in
/// kinds are code (`evenkeel_kinds::defaults`), those of custom resources stand in the definition's schema.
pub(in crate::verbs) fn default(write: &Write<'_>, object: &mut Value) {
    if write.request.resource().converts() {
        write.stored.strategy.convert_in(&write.stored.gvk, object);
    }
    write.stored.strategy.default(object);
}
