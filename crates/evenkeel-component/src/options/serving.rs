//! What a program serves, and to whom.

use crate::flags::{Reader, ValueError};
use std::{net::IpAddr, time::Duration};

/// What is served, and to whom.
#[derive(Debug, Clone)]
pub struct ServingOptions {
    /// Address to listen on.
    pub address: IpAddr,
    /// Port to listen on; 0 serves nothing.
    pub port: u16,
    /// Paths of a certificate and its key.
    pub certificate: Option<(String, String)>,
    /// Folder for a self-signed certificate; in memory when empty.
    pub cert_dir: Option<String>,
    /// Kubeconfig for token reviews.
    pub authentication_kubeconfig: Option<String>,
    /// Kubeconfig for access reviews.
    pub authorization_kubeconfig: Option<String>,
    /// CA of client certificates.
    pub client_ca: Option<String>,
    /// Paths that anyone may get.
    pub always_allow: Vec<String>,
    /// How long token reviews are remembered.
    pub token_ttl: Duration,
    /// How long a granted access review is remembered.
    pub granted_ttl: Duration,
    /// How long a denied access review is remembered.
    pub denied_ttl: Duration,
}

impl ServingOptions {
    /// Checks what was given.
    ///
    /// # Errors
    /// When a value is not allowed; the error names the flag.
    pub fn check(read: &Reader) -> Result<Self, ValueError> {
        let address = read.text("bind-address")?;
        let certificate = match (read.path("tls-cert-file")?, read.path("tls-private-key-file")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (given, _) => {
                let reason = "--tls-cert-file and --tls-private-key-file go together";
                return Err(ValueError::refused(
                    "tls-cert-file",
                    given.unwrap_or_default(),
                    reason,
                ));
            }
        };
        Ok(Self {
            address: address.parse().map_err(|_| {
                ValueError::refused("bind-address", &address, "is not an IP address")
            })?,
            port: read.port("secure-port")?,
            certificate,
            cert_dir: read.path("cert-dir")?,
            authentication_kubeconfig: read.path("authentication-kubeconfig")?,
            authorization_kubeconfig: read.path("authorization-kubeconfig")?,
            client_ca: read.path("client-ca-file")?,
            always_allow: read.list("authorization-always-allow-paths")?,
            token_ttl: read.duration("authentication-token-webhook-cache-ttl")?,
            granted_ttl: read.duration("authorization-webhook-cache-authorized-ttl")?,
            denied_ttl: read.duration("authorization-webhook-cache-unauthorized-ttl")?,
        })
    }
}
