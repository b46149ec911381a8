//! Guards for plugin calls: a panic becomes an error of the plugin, and only ends one pod's attempt.

use super::Status;
use evenkeel_runtime::tasks::{catch_call_panic, catch_panic};

/// Calls a plugin and catches its panic. State that the plugin shares must stay valid wherever it panics: the caller
/// undoes the call's changes.
///
/// # Errors
/// A status with code [`super::Code::Error`] and the message of the panic.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Status> {
    catch_call_panic(call).map_err(|panic| Status::error(format!("panic: {panic}")))
}

/// Awaits a plugin's future and catches its panic, like [`guarded`].
///
/// # Errors
/// The message of the panic, after `panic: `.
pub(crate) async fn guarded_future<T>(call: impl Future<Output = T>) -> Result<T, String> {
    catch_panic(call).await.map_err(|panic| format!("panic: {panic}"))
}
