//! The embedded API server of `evenkeel up`.

use super::Args;
use anyhow::{Context, Result, anyhow};
use evenkeel::plane::Plane;
use evenkeel_apiserver::Server;
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};
use tokio::net::TcpListener;

/// Takes the port before anything else is done.
pub(super) async fn listen(args: &Args) -> Result<TcpListener> {
    let address = SocketAddr::new(args.bind_address, args.port);
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow!("port {} is in use: stop what uses it, or choose another with --port (0 takes a free one)", args.port)
        }
        ErrorKind::PermissionDenied => anyhow!("port {} may not be used by this user: choose one above 1023 with --port", args.port),
        ErrorKind::AddrNotAvailable => anyhow!("--bind-address {}: this machine has no such address", args.bind_address),
        _ => anyhow::Error::from(error).context(format!("cannot listen on {address}")),
    })
}

/// Where clients find a server that listens on this address.
pub(super) fn url(address: SocketAddr) -> String {
    let host =
        if address.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address.ip() };
    format!("https://{}", SocketAddr::new(host, address.port()))
}

/// Opens the store and makes the certificates.
pub(super) async fn build(args: &Args, address: SocketAddr) -> Result<Server> {
    let mut builder = Server::builder().data_dir(args.data_dir.clone()).advertise(address);
    if !address.ip().is_loopback() && !address.ip().is_unspecified() {
        builder = builder.name(address.ip().to_string());
    }
    if let Some(path) = &args.token_auth_file {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("--token-auth-file: cannot read {}", path.display()))?;
        builder = builder.tokens_csv(&text);
    }
    builder.build().await.context("the API server cannot start")
}

/// Lets `componentstatuses` tell of what runs in this process.
pub(super) fn list_components(server: &Server, plane: &Plane) {
    for (name, tasks) in plane.programs() {
        let tasks = tasks.clone();
        server.component(name, move || match tasks.running().is_empty() {
            false => Ok(()),
            true => Err("it does not run in this process".to_owned()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_all_is_reached_on_loopback() {
        assert_eq!(url("0.0.0.0:6443".parse().expect("an address")), "https://127.0.0.1:6443");
        assert_eq!(url("[::1]:1".parse().expect("an address")), "https://[::1]:1");
    }
}
