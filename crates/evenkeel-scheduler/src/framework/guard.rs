//! Guards for plugin calls. A panic becomes an error of the plugin, and ends only one pod's attempt instead of the
//! scheduler.

use super::Status;
use evenkeel_runtime::tasks::{catch_call_panic, catch_panic};

/// Calls a plugin and catches its panic. The caller undoes the changes of a failed call, so that shared state stays
/// valid.
///
/// # Errors
/// Returns a status with code [`super::Code::Error`] and the message of the panic.
pub(crate) fn catch_plugin_panic<T>(call: impl FnOnce() -> T) -> Result<T, Status> {
    catch_call_panic(call).map_err(|panic| Status::error(format!("panic: {panic}")))
}

/// Awaits the future of a plugin call and catches its panic, like [`catch_plugin_panic`].
///
/// # Errors
/// Returns `panic: ` and the message. It is not a [`Status`], because the callers put the plugin's name before it.
pub(crate) async fn catch_plugin_panic_async<T>(
    call: impl Future<Output = T>,
) -> Result<T, String> {
    catch_panic(call).await.map_err(|panic| format!("panic: {panic}"))
}
