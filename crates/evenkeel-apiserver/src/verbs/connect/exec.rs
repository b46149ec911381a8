//! Subresources `exec` and `attach`: connect the client to the streams of a new command in a container, or of the
//! container's main process.

use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{flag, list, text};
use evenkeel_tasks::catch_panic;
use futures::{FutureExt as _, TryFutureExt as _};
use serde_json::Value;

use super::location;
use crate::api::{Answer, Context};
use crate::kubelet::{PodRef, StreamError};
use crate::request::RequestContext;
use crate::streaming::{self, Channels, Handshake, Outcome, Purpose};

/// Serves `exec` or `attach`. `options` are the connection options after admission.
///
/// Upstream: `ExecREST.Connect`, `AttachREST.Connect`, `streamLocation`, `ServeExec`, `ServeAttach`.
pub(super) fn serve(
    request: &RequestContext<'_>,
    cx: &Context<'_>,
    options: &Value,
) -> Result<Answer, StatusError> {
    let Some(pod) = cx.api.read(cx.resource, cx.namespace, cx.name)? else {
        return Err(StatusError::not_found(&cx.resource.name, cx.name));
    };
    let container = location::choose_container(&pod, text(options, "container"))?;
    location::ensure_on_node(cx.api, &pod)?;
    let Handshake { protocol, response } =
        streaming::accept(request.headers, Purpose::RemoteCommand)?;
    let Some(upgrade) = request.upgrade.cloned() else {
        return Err(StatusError::internal("the connection cannot switch protocols"));
    };
    let slot = cx.api.streams.take(&cx.user.name)?;
    let tty = flag(options, "tty");
    let channels = Channels {
        stdin: flag(options, "stdin"),
        stdout: flag(options, "stdout"),
        // A terminal has a single output stream.
        stderr: flag(options, "stderr") && !tty,
    };
    let command: Vec<String> =
        list(options, "command").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let kubelet = cx.api.kubelets.get();
    let (namespace, name) = (cx.namespace.to_owned(), cx.name.to_owned());
    let is_attach = cx.subresource == "attach";
    let gauge = cx.api.metrics.long_running();
    let start = move |streams| async move {
        if channels == Channels::default() {
            let why = "you must specify at least 1 of stdin, stdout, stderr";
            return Outcome::Failed(format!("unable to upgrade connection: {why}"));
        }
        let Some(kubelet) = kubelet else {
            return Outcome::Failed(start_error(&StreamError::NoContainer(container), is_attach));
        };
        let pod = PodRef { namespace: &namespace, name: &name };
        let process = if is_attach {
            kubelet.attach(pod, &container, streams).map_ok(|()| 0).boxed()
        } else {
            kubelet.exec(pod, &container, command, streams)
        };
        let error = match catch_panic(process).await {
            Ok(Ok(code)) => return Outcome::Exited(code),
            Ok(Err(error)) => error,
            Err(panic) => StreamError::Failed(panic),
        };
        Outcome::Failed(start_error(&error, is_attach))
    };
    let mut stopped = upgrade.stopped;
    cx.api.tasks.spawn_stream(async move {
        // Hold these until the connection ends.
        let _held = (slot, gauge);
        tokio::select! {
            () = streaming::remote_command(protocol, channels, tty, upgrade.connection, start) => {}
            // The listener stops.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    });
    Ok(Answer::Response(response))
}

/// Returns the error message of a process that the server cannot start or attach to.
fn start_error(error: &StreamError, is_attach: bool) -> String {
    match error {
        StreamError::NoContainer(_) => format!("unable to upgrade connection: {error}"),
        StreamError::Failed(_) if is_attach => format!("error attaching to container: {error}"),
        StreamError::Failed(_) => format!("error executing command in container: {error}"),
    }
}
