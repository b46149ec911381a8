//! Proxied requests that switch to another protocol, such as WebSocket.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_apimachinery::headers::text;
use evenkeel_apimachinery::status::StatusError;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::TokioIo;

use super::answer::respond;
use super::dial::{self, Link};
use super::exchange::{Exchange, send};
use super::headers;
use crate::api::Context;
use crate::request::RequestContext;
use crate::response::Body;

/// How long the client may take to switch protocols after the answer.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a client asks for another protocol.
///
/// Upstream: `IsUpgradeRequest`.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    text(headers, CONNECTION).to_ascii_lowercase().contains("upgrade")
}

/// Asks the service to switch protocols; then its bytes and those of the client are exchanged until one of them is gone.
///
/// Upstream: `UpgradeAwareHandler.tryUpgrade`.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    cx: &Context<'_>,
    exchange: Exchange,
) -> Result<Response<Body>, StatusError> {
    let Some(upgrade) = request.upgrade.cloned() else {
        return Err(StatusError::internal("request connection cannot be hijacked"));
    };
    let slot = cx.api.streams.take(&cx.user.name)?;
    let gauge = cx.api.metrics.long_running();
    let Link { stream, server } = dial::dial(cx.api, &exchange.location).await?;
    let outgoing = exchange.request(request, true, Full::new(Bytes::new()))?;
    let (mut response, driver) = send(stream, server, outgoing).await?;
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        cx.api.tasks.spawn_stream(driver);
        if status.is_client_error() || status.is_server_error() {
            return respond(response, &exchange.links).await;
        }
        let why = format!("invalid upgrade response: status code {}", status.as_u16());
        return Err(StatusError::internal(why));
    }
    let service = hyper::upgrade::on(&mut response);
    let (mut head, _) = response.into_parts();
    let protocol = head.headers.get(UPGRADE).cloned();
    headers::remove_connection(&mut head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        head.headers.insert(UPGRADE, protocol);
    }
    let mut stopped = upgrade.stopped;
    cx.api.tasks.spawn_stream(async move {
        let _held = (slot, gauge);
        let exchange = async {
            let both = futures::future::try_join(service, upgrade.connection);
            let Ok(Ok((service, client))) = tokio::time::timeout(UPGRADE_TIMEOUT, both).await
            else {
                return;
            };
            let (mut service, mut client) = (TokioIo::new(service), TokioIo::new(client));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut service).await {
                tracing::debug!(%error, "an upgraded connection of a proxy ended");
            }
        };
        tokio::select! {
            _ = futures::future::join(exchange, driver) => {}
            // The listener stops.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    });
    Ok(Response::from_parts(head, Body::empty()))
}
