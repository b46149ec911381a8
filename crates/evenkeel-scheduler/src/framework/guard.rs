//! Guards calls of plugins: a panic of a plugin is its error, and costs one pod its attempt.

use super::Status;
use evenkeel_runtime::tasks::{catch_call_panic, catch_panic};

/// Calls a plugin. What it shares with others must hold wherever it panics: the caller undoes what the call changed.
///
/// # Errors
/// A status with code [`super::Code::Error`] and the message of the panic.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Status> {
    catch_call_panic(call).map_err(|panic| Status::error(format!("panic: {panic}")))
}

/// As [`guarded`], for a future.
///
/// # Errors
/// The message of the panic, after `panic: `.
pub(crate) async fn guarded_future<T>(call: impl Future<Output = T>) -> Result<T, String> {
    catch_panic(call).await.map_err(|panic| format!("panic: {panic}"))
}
