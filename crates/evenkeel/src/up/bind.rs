//! Chooses the port of the embedded API server and listens on it.

use super::Args;
use crate::server::listen;
use anyhow::Result;
use evenkeel_runtime::clock::Clock;
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::net::TcpListener;

/// Default port of the API server, the same as upstream. If it is in use, [`bind`] chooses a free one.
const DEFAULT_PORT: u16 = 6443;

/// Delay between attempts to listen on the port after a restart.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of attempts to listen on the port after a restart: five seconds.
const MAX_ATTEMPTS: usize = 100;

/// Listens on the previous port after a restart. Otherwise, listens on the requested port. If no port is requested, listens on
/// the default port or, if that is in use, on a free one.
pub(super) async fn bind(args: &Args, clock: &Clock) -> Result<TcpListener> {
    let at =
        |port| SocketAddr::new(args.bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port);
    if let Some(port) = args.restarted_on {
        return bind_again(at(port), clock).await;
    }
    if let Some(port) = args.port {
        return listen(at(port), "port").await;
    }
    match TcpListener::bind(at(DEFAULT_PORT)).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == ErrorKind::AddrInUse => listen(at(0), "port").await,
        Err(_) => listen(at(DEFAULT_PORT), "port").await,
    }
}

/// Listens on the port that the process had before its restart. Meanwhile, the system may have used the port for another
/// process's outgoing connection, which usually ends soon.
async fn bind_again(address: SocketAddr, clock: &Clock) -> Result<TcpListener> {
    for _ in 0..MAX_ATTEMPTS {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => clock.sleep(RETRY_INTERVAL).await,
            Err(_) => break,
        }
    }
    listen(address, "port").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_restart_waits_for_its_port_for_a_while() {
        let clock = Clock::system();
        let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = other.local_addr().expect("an address");
        let refused = bind_again(address, &clock).await.expect_err("it is in use all the time");
        assert!(refused.to_string().contains("is in use"), "{refused:#}");
        let (bound, ()) = tokio::join!(bind_again(address, &clock), async {
            clock.sleep(Duration::from_secs(3)).await;
            drop(other);
        });
        assert_eq!(bound.expect("free").local_addr().expect("an address"), address);
    }
}
