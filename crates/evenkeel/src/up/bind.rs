//! Port of the embedded API server.

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

/// Port of the API server, unless it is in use; upstream's.
const DEFAULT_PORT: u16 = 6443;

/// Interval at which a cluster that starts again tries its port.
const INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of tries of a cluster that starts again: five seconds.
const MAX_TRIES: usize = 100;

/// Listens on the port that was asked for; on the former one after a restart; or else on the default one or a free one.
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

/// Listens on the port that the process had before it started again. Meanwhile, the system may have given the port to a
/// connection of somebody else, most of which are short.
async fn bind_again(address: SocketAddr, clock: &Clock) -> Result<TcpListener> {
    for _ in 0..MAX_TRIES {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => clock.sleep(INTERVAL).await,
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
