//! Accepts connections without ever failing. When file descriptors run out, the listener waits until other
//! connections close. It refuses peers with too many connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::peers::{ConnectionLimits, ConnectionSlot, LimitExceeded, Peers, admit};

/// Initial backoff after a failed accept. It doubles each time.
const INITIAL_BACKOFF: Duration = Duration::from_millis(5);
/// Upper bound of the backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// Minimum interval between log messages about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of TCP keep-alive probes, the same as upstream.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3 * 60);

/// An accepted connection and its slot within the limits.
#[derive(Debug)]
pub struct Accepted {
    /// The TCP connection.
    pub stream: TcpStream,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Slot of the connection. The holder drops it when the connection closes.
    pub slot: ConnectionSlot,
}

/// TCP listener that accepts connections within limits.
pub struct Listener {
    listener: TcpListener,
    peers: Arc<Mutex<Peers>>,
    now: Box<dyn Fn() -> Instant + Send + Sync>,
    backoff: Duration,
    log: LogLimit,
}

impl Listener {
    /// Wraps `listener`. `now` reads the monotonic clock.
    pub fn new(
        listener: TcpListener,
        limits: ConnectionLimits,
        now: impl Fn() -> Instant + Send + Sync + 'static,
    ) -> Self {
        let peers = Arc::new(Mutex::new(Peers::new(limits)));
        let (now, log) = (Box::new(now), LogLimit::default());
        Self { listener, peers, now, backoff: INITIAL_BACKOFF, log }
    }

    /// Returns the next connection. Cancel safe.
    pub async fn accept(&mut self) -> Accepted {
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if let Some(suppressed) = self.log.allow((self.now)()) {
                        tracing::warn!(%error, suppressed, "a connection cannot be accepted");
                    }
                    // The usual cause is too many open files. Other connections must close first.
                    tokio::time::sleep(self.backoff).await;
                    self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
                    continue;
                }
            };
            self.backoff = INITIAL_BACKOFF;
            let slot = match admit(&self.peers, peer.ip()) {
                Ok(slot) => slot,
                Err(exceeded) => {
                    if let Some(suppressed) = self.log.allow((self.now)()) {
                        let (limit, connections) = match exceeded {
                            LimitExceeded::Total(connections) => ("total", connections),
                            LimitExceeded::PerPeer(connections) => ("per peer", connections),
                        };
                        tracing::warn!(
                            peer = %peer.ip(), connections, limit, suppressed,
                            "too many connections: refusing a new one"
                        );
                    }
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let keepalive =
                TcpKeepalive::new().with_time(KEEPALIVE_INTERVAL).with_interval(KEEPALIVE_INTERVAL);
            let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
            return Accepted { stream, peer, slot };
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// Allows one log message in each [`LOG_INTERVAL`], and counts the suppressed ones.
#[derive(Debug, Default)]
struct LogLimit {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// Returns how many messages were suppressed since the last one, or `None` if this message is suppressed.
    fn allow(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + LOG_INTERVAL) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_message_passes_in_ten_seconds() {
        #[expect(clippy::disallowed_methods, reason = "a test's own time")]
        let start = Instant::now();
        let mut limit = LogLimit::default();
        let passed = [0, 1, 9, 10, 11, 30].map(|at| limit.allow(start + Duration::from_secs(at)));
        assert_eq!(passed, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[tokio::test]
    async fn a_peer_with_too_many_connections_is_refused_until_one_closes() {
        use tokio::io::AsyncReadExt as _;

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let limits = ConnectionLimits { total: 10, per_peer: 1 };
        #[expect(clippy::disallowed_methods, reason = "a test's own time")]
        let mut listener = Listener::new(listener, limits, Instant::now);
        let _first = TcpStream::connect(address).await.expect("a connection");
        let accepted = listener.accept().await;
        let mut refused = TcpStream::connect(address).await.expect("a connection");
        let mut byte = [0];
        let closed = tokio::select! {
            _ = listener.accept() => panic!("the second connection is accepted"),
            read = refused.read(&mut byte) => matches!(read, Ok(0) | Err(_)),
        };
        assert!(closed);
        drop(accepted);
        let _again = TcpStream::connect(address).await.expect("a connection");
        listener.accept().await;
    }
}
