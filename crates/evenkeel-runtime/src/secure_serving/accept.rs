//! Accepts connections and performs TLS handshakes, within limits of number and time.

use crate::{clock::Clock, tasks::Tasks};
use evenkeel_listener::{
    Accepted, ConnectionLimits, Listener, TLS_HANDSHAKE_TIMEOUT, refuse_plain_http,
};
use std::{io, net::SocketAddr, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// A server that accepts connections until it is stopped.
pub(crate) struct Server {
    pub(crate) listener: TcpListener,
    pub(crate) clock: Clock,
    /// Name of the task of each connection.
    pub(crate) task: &'static str,
    /// Maximum time to wait for open requests after the stop.
    pub(crate) drain: Duration,
    pub(crate) stop: CancellationToken,
}

impl Server {
    /// Calls `serve` with each connection, in a task of `tasks`. After the stop, it waits until all tasks have ended.
    pub(crate) async fn run<F>(self, tasks: Tasks, serve: impl Fn(Accepted) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { listener, clock, task, drain, stop } = self;
        let limits = ConnectionLimits::default();
        let mut listener = Listener::new(listener, limits, move || clock.instant());
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            tasks.spawn_finite(task, serve(accepted));
        }
        drop(listener);
        tasks.shut_down(drain).await;
    }
}

/// Performs a TLS handshake by `accept`. Returns `None` after `stop`, for a client that sent plain HTTP (it receives an
/// error), and for a failure, which is logged.
pub(crate) async fn handshake<F>(
    mut stream: TcpStream,
    peer: SocketAddr,
    stop: &CancellationToken,
    accept: impl FnOnce(TcpStream) -> F,
) -> Option<TlsStream<TcpStream>>
where
    F: Future<Output = io::Result<TlsStream<TcpStream>>>,
{
    let handshake = async {
        if refuse_plain_http(&mut stream).await? {
            return Ok(None);
        }
        accept(stream).await.map(Some)
    };
    let handshake = tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, handshake);
    match stop.run_until_cancelled(handshake).await? {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!(%peer, "TLS handshake timed out");
            None
        }
    }
}
