//! Conversion and defaulting of objects.

use serde_json::Value;

use crate::audit::Level;
use crate::verbs::attempt::Write;

/// Converts an object from the request's version to the storage version, and sets the kind's defaults. The defaults of
/// built-in kinds are in `evenkeel_kinds::defaults`, those of custom resources in the definition's schema.
pub(in crate::verbs) fn default(write: &Write<'_>, object: &mut Value) {
    if write.request.resource().converts() {
        write.stored.strategy.convert_in(&write.stored.gvk, object);
    }
    write.stored.strategy.default(object);
}

/// Records the object of the request for its audit event, with defaults, in the request's version.
///
/// Upstream: `LogRequestObject`.
pub(in crate::verbs) fn log_request_object(write: &Write<'_>, object: &Value) {
    let audit = write.request.audit;
    if !audit.wants(Level::Request) {
        audit.request_object(object);
        return;
    }
    let mut logged = object.clone();
    default(write, &mut logged);
    write.convert_out(&mut logged);
    audit.request_object(&logged);
}
