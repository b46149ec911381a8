//! The embedded API server of `evenkeel up`.

use super::{Args, options::ServerArgs};
use anyhow::{Context, Result, anyhow};
use evenkeel::plane::Plane;
use evenkeel_apiserver::{AuthenticationOptions, Server};
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
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
        builder = builder.tokens_csv(&read("token-auth-file", path)?);
    }
    if let Some(path) = &args.server.client_ca_file {
        builder = builder.client_ca(read("client-ca-file", path)?);
    }
    if let Some(path) = &args.server.encryption_provider_config {
        builder = builder.encryption_provider_config(read("encryption-provider-config", path)?);
    }
    for name in &args.server.enable_admission_plugins {
        builder = builder.enable_admission_plugin(name);
    }
    builder = builder.authentication(authentication(&args.server)?);
    builder.build().await.context("the API server cannot start")
}

/// Reads the files of the flags of authentication.
fn authentication(args: &ServerArgs) -> Result<AuthenticationOptions> {
    let text =
        |flag, path: &Option<PathBuf>| path.as_ref().map(|path| read(flag, path)).transpose();
    let signing_key = &args.service_account_signing_key_file;
    let keys = args.service_account_key_file.iter();
    Ok(AuthenticationOptions {
        authentication_config: text("authentication-config", &args.authentication_config)?,
        anonymous_auth: args.anonymous_auth,
        enable_bootstrap_token_auth: args.enable_bootstrap_token_auth,
        service_account_signing_key: text("service-account-signing-key-file", signing_key)?,
        service_account_keys: keys
            .map(|path| read("service-account-key-file", path))
            .collect::<Result<_>>()?,
        service_account_issuers: args.service_account_issuer.clone(),
        api_audiences: args.api_audiences.clone(),
        service_account_jwks_uri: None,
    })
}

fn read(flag: &str, path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("--{flag}: cannot read {}", path.display()))
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
