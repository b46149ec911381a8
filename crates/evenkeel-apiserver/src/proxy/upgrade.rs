//! Proxied requests that switch to another protocol, such as WebSocket.

use std::time::Duration;

use evenkeel_apimachinery::headers::text;
use futures::future::BoxFuture;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::headers;
use crate::request::Upgrade;
use crate::response::Body;
use crate::tasks::Tasks;

/// Time within which both the client and the server must have switched protocols after the response.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns whether a client asks to switch to another protocol.
///
/// Upstream: `IsUpgradeRequest`.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    text(headers, CONNECTION).to_ascii_lowercase().contains("upgrade")
}

/// Reason why a server did not switch protocols.
pub(crate) enum Refused {
    /// An error response of the server, which the client gets.
    Answer(Box<Response<Incoming>>),
    /// The response neither switches protocols nor reports an error. The message is upstream's.
    Invalid(String),
}

/// Switches protocols if the server's response does. A spawned task then copies bytes between the client and the server
/// until one of them closes the connection. `driver` drives the connection to the server, as returned by
/// [`send`](super::send). `held` is dropped when the copying ends.
///
/// Upstream: `UpgradeAwareHandler.tryUpgrade`.
pub(crate) fn switch(
    tasks: &Tasks,
    upgrade: Upgrade,
    mut response: Response<Incoming>,
    driver: BoxFuture<'static, ()>,
    held: impl Send + 'static,
) -> Result<Response<Body>, Refused> {
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        tasks.spawn_stream(async move {
            let _held = held;
            driver.await;
        });
        if status.is_client_error() || status.is_server_error() {
            return Err(Refused::Answer(Box::new(response)));
        }
        let why = format!("invalid upgrade response: status code {}", status.as_u16());
        return Err(Refused::Invalid(why));
    }
    let server = hyper::upgrade::on(&mut response);
    let (mut head, _) = response.into_parts();
    let protocol = head.headers.get(UPGRADE).cloned();
    headers::remove_hop_by_hop(&mut head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        head.headers.insert(UPGRADE, protocol);
    }
    let mut stopped = upgrade.stopped;
    tasks.spawn_stream(async move {
        let _held = held;
        let exchange = async {
            let upgrades = futures::future::try_join(server, upgrade.connection);
            let Ok(Ok((server, client))) = tokio::time::timeout(UPGRADE_TIMEOUT, upgrades).await
            else {
                return;
            };
            let (mut server, mut client) = (TokioIo::new(server), TokioIo::new(client));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
                tracing::debug!(%error, "an upgraded connection of a proxy ended");
            }
        };
        tokio::select! {
            _ = futures::future::join(exchange, driver) => {}
            // The listener of the client's connection stops.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    });
    Ok(Response::from_parts(head, Body::empty()))
}
