//! Configuration of the embedded API server from flags, and its listener.

mod options;

use anyhow::{Context, Result, anyhow};
use evenkeel_apiserver::{AuthenticationOptions, Builder, RequestHeaderOptions, Server};
use evenkeel_component::flags::Reader;
pub(crate) use options::ServerArgs;
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};
use tokio::net::TcpListener;

/// Feature gate of `shardSelector` in lists and watches (KEP-5866).
pub(crate) const SHARDED_LIST_AND_WATCH: &str = "ShardedListAndWatch";

/// Listens on `address`. `flag` is the name of the port's flag, for errors.
pub(crate) async fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    let port = address.port();
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow!("port {port} is in use: stop what uses it, or choose another with --{flag} (0 takes a free one)")
        }
        ErrorKind::PermissionDenied => anyhow!("port {port} may not be used by this user: choose one above 1023 with --{flag}"),
        ErrorKind::AddrNotAvailable => anyhow!("--bind-address {}: this machine has no such address", address.ip()),
        _ => anyhow::Error::from(error).context(format!("cannot listen on {address}")),
    })
}

/// Returns the URL of a server that listens on this address, for clients on this machine.
pub(crate) fn local_url(address: SocketAddr) -> String {
    let host =
        if address.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address.ip() };
    format!("https://{}", SocketAddr::new(host, address.port()))
}

/// Returns the builder of a server with these flags, which clients reach at `address`. `request_header` has the
/// trusted front proxies, if any.
pub(crate) fn configure(
    args: &ServerArgs,
    address: SocketAddr,
    request_header: Option<RequestHeaderOptions>,
) -> Result<Builder> {
    let mut builder = Server::builder().advertise(address);
    if !address.ip().is_loopback() && !address.ip().is_unspecified() {
        builder = builder.name(address.ip().to_string());
    }
    if let Some(path) = &args.token_auth_file {
        builder = builder.tokens_csv(&read_file("token-auth-file", path)?);
    }
    if let Some(path) = &args.client_ca_file {
        builder = builder.client_ca(read_file("client-ca-file", path)?);
    }
    if let Some(path) = &args.encryption_provider_config {
        builder =
            builder.encryption_provider_config(read_file("encryption-provider-config", path)?);
    }
    if let Some(range) = &args.service_cluster_ip_range {
        builder = builder.service_cluster_ip_range(range);
    }
    if let Some(bytes) = args.quota_backend_bytes {
        builder = builder.quota_backend_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    for mode in &args.authorization_mode {
        builder = builder.authorization_mode(mode);
    }
    if let Some(path) = &args.authorization_config {
        builder = builder.authorization_config(path.clone());
    }
    if let Some(options) = &args.authorization_webhook {
        builder = builder.authorization_webhook(options.clone());
    }
    for name in &args.enable_admission_plugins {
        builder = builder.enable_admission_plugin(name);
    }
    for name in &args.disable_admission_plugins {
        builder = builder.disable_admission_plugin(name);
    }
    Ok(builder.authentication(authentication_options(args, request_header)?))
}

/// Reads the files of the authentication flags.
fn authentication_options(
    args: &ServerArgs,
    request_header: Option<RequestHeaderOptions>,
) -> Result<AuthenticationOptions> {
    let read_optional =
        |flag, path: &Option<PathBuf>| path.as_ref().map(|path| read_file(flag, path)).transpose();
    let signing_key = &args.service_account_signing_key_file;
    let keys = args.service_account_key_file.iter();
    Ok(AuthenticationOptions {
        authentication_config: args.authentication_config.clone(),
        anonymous_auth: args.anonymous_auth,
        enable_bootstrap_token_auth: args.enable_bootstrap_token_auth,
        service_account_signing_key: read_optional(
            "service-account-signing-key-file",
            signing_key,
        )?,
        service_account_keys: keys
            .map(|path| read_file("service-account-key-file", path))
            .collect::<Result<_>>()?,
        service_account_issuers: args.service_account_issuer.clone(),
        api_audiences: args.api_audiences.clone(),
        service_account_jwks_uri: args.service_account_jwks_uri.clone(),
        request_header,
    })
}

/// Returns the files of a certificate chain and of its key, which two flags name. One flag without the other is invalid.
pub(crate) fn certificate_and_key(read: &Reader, chain: &str, key: &str) -> Option<[PathBuf; 2]> {
    match [chain, key].map(|flag| read.non_empty_text(flag).map(PathBuf::from)) {
        [Some(chain), Some(key)] => Some([chain, key]),
        [None, None] => None,
        _ => {
            read.record_invalid(chain, format!("--{chain} and --{key} must be set together"));
            None
        }
    }
}

/// Reads the file that a flag names.
pub(crate) fn read_file(flag: &str, path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("--{flag}: cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_the_unspecified_address_has_loopback() {
        assert_eq!(
            local_url("0.0.0.0:6443".parse().expect("an address")),
            "https://127.0.0.1:6443"
        );
        assert_eq!(local_url("[::1]:1".parse().expect("an address")), "https://[::1]:1");
    }
}
