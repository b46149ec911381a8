//! Subresource `portforward`: connections to ports of a pod.

use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::text;

use super::location;
use crate::api::{Answer, Context};
use crate::kubelet::PodRef;
use crate::request::RequestContext;
use crate::streaming::{self, ForwardedPod, Handshake, Purpose};

/// Serves `portforward` of a pod. Only admission reads the ports in the options: the client names the port again for
/// each connection.
///
/// Upstream: `PortForwardREST.Connect`, `PortForwardLocation`, `ServePortForward`.
pub(super) fn serve(request: &RequestContext<'_>, cx: &Context<'_>) -> Result<Answer, StatusError> {
    let Some(pod) = cx.api.read(cx.resource, cx.namespace, cx.name)? else {
        return Err(StatusError::not_found(&cx.resource.name, cx.name));
    };
    location::ensure_on_node(cx.api, &pod)?;
    let Handshake { protocol, response } =
        streaming::accept(request.headers, Purpose::PortForward)?;
    let Some(upgrade) = request.upgrade.cloned() else {
        return Err(StatusError::internal("the connection cannot switch protocols"));
    };
    let slot = cx.api.streams.take(&cx.user.name)?;
    let gauge = cx.api.metrics.long_running();
    let kubelet = cx.api.kubelets.get();
    let (namespace, name) = (cx.namespace.to_owned(), cx.name.to_owned());
    let (connections, user) = (cx.api.connections.clone(), cx.user.name.clone());
    let dial = move |port| {
        let slot = connections.take(&user).map_err(|refused| refused.message().to_owned())?;
        let pod = PodRef { namespace: &namespace, name: &name };
        let connection = kubelet.as_ref().and_then(|kubelet| kubelet.connect(pod, port));
        let Some(mut connection) = connection else {
            return Err(format!("dial tcp4 127.0.0.1:{port}: connect: connection refused"));
        };
        // Hold the user's slot until the connection to the port ends.
        let server = connection.server;
        connection.server = Box::pin(async move {
            let _held = slot;
            server.await;
        });
        Ok(connection)
    };
    let forwarded =
        ForwardedPod { name: cx.name.to_owned(), uid: text(&pod, "metadata.uid").to_owned(), dial };
    let mut stopped = upgrade.stopped;
    cx.api.tasks.spawn_stream(async move {
        // Hold these until the client's connection ends.
        let _held = (slot, gauge);
        tokio::select! {
            () = streaming::port_forward(protocol, upgrade.connection, forwarded) => {}
            // The listener stops.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    });
    Ok(Answer::Response(response))
}
