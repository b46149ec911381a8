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

/// How long the client may take to switch protocols after the answer.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a client asks for another protocol.
///
/// Upstream: `IsUpgradeRequest`.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    text(headers, CONNECTION).to_ascii_lowercase().contains("upgrade")
}

/// Answer to a request to switch protocols that does not switch them.
pub(crate) enum Refused {
    /// An error of the service, for the client.
    Answer(Box<Response<Incoming>>),
    /// Another answer, which is no answer to such a request. The text is upstream's.
    Invalid(String),
}

/// Switches protocols if the service's answer does; then its bytes and those of the client are exchanged until one of them
/// is gone. `driver` drives the service's connection. `held` is dropped when the exchange ends.
///
/// Upstream: `UpgradeAwareHandler.tryUpgrade`.
pub(crate) fn switch(
    tasks: &Tasks,
    upgrade: Upgrade,
    (mut response, driver): (Response<Incoming>, BoxFuture<'static, ()>),
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
    let service = hyper::upgrade::on(&mut response);
    let (mut head, _) = response.into_parts();
    let protocol = head.headers.get(UPGRADE).cloned();
    headers::remove_connection(&mut head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        head.headers.insert(UPGRADE, protocol);
    }
    let mut stopped = upgrade.stopped;
    tasks.spawn_stream(async move {
        let _held = held;
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
