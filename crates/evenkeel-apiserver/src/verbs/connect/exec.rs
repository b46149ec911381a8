//! The `exec` sub-resource: executes a command in a container, whose streams are those of the connection.

use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{flag, list, text};
use evenkeel_tasks::catch_panic;
use serde_json::Value;

use super::proxy;
use crate::api::{Answer, Context};
use crate::auth::{Attributes, FieldRequirements};
use crate::kubelet::{PodRef, StreamError};
use crate::request::RequestContext;
use crate::resource::GroupResource;
use crate::streaming::{self, Channels, Handshake, Outcome, Session};

/// Serves `exec` with these options, which admission has seen.
///
/// Upstream: `ExecREST.Connect`, `ExecLocation`, `ServeExec`.
pub(super) fn serve(
    request: &RequestContext<'_>,
    cx: &Context<'_>,
    options: &Value,
) -> Result<Answer, StatusError> {
    ensure_authorized_to_create(request, cx)?;
    let Some(pod) = cx.api.read(cx.resource, cx.namespace, cx.name)? else {
        return Err(StatusError::not_found(&cx.resource.name, cx.name));
    };
    let container = proxy::container(&pod, text(options, "container"))?;
    let node = text(&pod, "spec.nodeName");
    if node.is_empty() {
        let why = format!("pod {} does not have a host assigned", cx.name);
        return Err(StatusError::bad_request(why));
    }
    proxy::find_node(cx.api, node)?;
    let Handshake { protocol, response } = streaming::accept(request.headers)?;
    let Some(upgrade) = request.upgrade.cloned() else {
        return Err(StatusError::internal("the connection cannot switch protocols"));
    };
    let slot = cx.api.streams.take(&cx.user.name)?;
    let tty = flag(options, "tty");
    let channels = Channels {
        stdin: flag(options, "stdin"),
        stdout: flag(options, "stdout"),
        // A terminal has one output.
        stderr: flag(options, "stderr") && !tty,
    };
    let command: Vec<String> =
        list(options, "command").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let kubelet = cx.api.kubelets.get();
    let (namespace, name) = (cx.namespace.to_owned(), cx.name.to_owned());
    let gauge = cx.api.metrics.long_running();
    let start = move |streams| async move {
        if channels == Channels::default() {
            let why = "you must specify at least 1 of stdin, stdout, stderr";
            return Outcome::Failed(format!("unable to upgrade connection: {why}"));
        }
        let Some(kubelet) = kubelet else {
            return Outcome::Failed(not_started(&StreamError::NoContainer(container)));
        };
        let pod = PodRef { namespace: &namespace, name: &name };
        match catch_panic(kubelet.exec(pod, &container, command, streams)).await {
            Ok(Ok(code)) => Outcome::Exited(code),
            Ok(Err(error)) => Outcome::Failed(not_started(&error)),
            Err(panic) => Outcome::Failed(format!("error executing command in container: {panic}")),
        }
    };
    let session = Session { protocol, channels, tty };
    let mut stopped = upgrade.stopped;
    cx.api.tasks.spawn_stream(async move {
        let _held = (slot, gauge);
        tokio::select! {
            () = streaming::run(session, upgrade.connection, start) => {}
            // The listener stops.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    });
    Ok(Answer::Upgrade(response))
}

/// The error of a command that does not start.
fn not_started(error: &StreamError) -> String {
    match error {
        StreamError::NoContainer(_) => format!("unable to upgrade connection: {error}"),
        StreamError::Failed(_) => format!("error executing command in container: {error}"),
    }
}

/// Refuses who may not create the sub-resource: WebSocket comes with GET, for which `get` would be enough.
///
/// Upstream: `ensureAuthorizedForVerb`, of the feature `AuthorizePodWebsocketUpgradeCreatePermission`.
fn ensure_authorized_to_create(
    request: &RequestContext<'_>,
    cx: &Context<'_>,
) -> Result<(), StatusError> {
    if *request.method == http::Method::POST {
        return Ok(());
    }
    let attributes = Attributes {
        verb: "create",
        group: cx.request_group,
        resource: cx.resource.plural(),
        subresource: cx.subresource,
        namespace: cx.namespace,
        name: cx.name,
        path: None,
        field_selector: FieldRequirements::default(),
    };
    if cx.allows(&attributes) {
        return Ok(());
    }
    let pods = GroupResource { group: cx.request_group.into(), resource: "pods".into() };
    Err(StatusError::forbidden(&pods, cx.name, ""))
}
