//! Recovery from panics of handlers.

use std::any::Any;

use evenkeel_apimachinery::status::StatusError;
use evenkeel_tasks::panic_text;
use http::Method;

/// Returns the error for a request whose handler panicked.
///
/// Upstream: `WithPanicRecovery`.
pub(super) fn recover(panic: &(dyn Any + Send), method: &Method, path: &str) -> StatusError {
    tracing::error!(%method, path, panic = panic_text(panic), "apiserver panic'd");
    StatusError::plain_internal(
        "This request caused apiserver to panic. Look in the logs for details.",
    )
}
