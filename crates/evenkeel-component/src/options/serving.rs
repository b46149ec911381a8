//! Options of the secure port, and of delegated authentication and authorization.

use super::TlsOptions;
use crate::{features::FeatureGates, flags::Reader};
use std::{net::IpAddr, time::Duration};

/// Options of secure serving (upstream's `SecureServingOptions`, `DelegatingAuthenticationOptions` and
/// `DelegatingAuthorizationOptions`).
#[derive(Debug, Clone)]
pub struct ServingOptions {
    /// Address to listen on.
    pub address: IpAddr,
    /// Port to listen on. 0 disables serving.
    pub port: u16,
    /// Paths of a certificate and its key.
    pub certificate: Option<(String, String)>,
    /// Folder for a self-signed certificate. `None` keeps it in memory.
    pub cert_dir: Option<String>,
    /// TLS versions, cipher suites, curves, and certificates by server name.
    pub tls: TlsOptions,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Limit on concurrent streams of an HTTP/2 connection. `None` means the listener's default.
    pub http2_streams: Option<u32>,
    /// Whether the address may still be in use by a closing socket (`SO_REUSEADDR`). On Unix it always may.
    pub share_address: bool,
    /// Whether another program may use the port too (`SO_REUSEPORT`).
    pub share_port: bool,
    /// Kubeconfig for token reviews.
    pub authentication_kubeconfig: Option<String>,
    /// Kubeconfig for access reviews.
    pub authorization_kubeconfig: Option<String>,
    /// CA of client certificates.
    pub client_ca: Option<String>,
    /// Request headers of an authenticating front proxy.
    pub request_header: RequestHeader,
    /// `--authentication-skip-lookup`: do not read missing settings from the ConfigMap
    /// `extension-apiserver-authentication`.
    pub skip_lookup: bool,
    /// Whether the program starts even if that ConfigMap cannot be read.
    pub tolerate_lookup_failure: bool,
    /// Paths that are served without authorization.
    pub always_allow: Vec<String>,
    /// Time to live of a cached TokenReview result.
    pub token_ttl: Duration,
    /// Time to live of a cached SubjectAccessReview that allows the request.
    pub granted_ttl: Duration,
    /// Time to live of a cached SubjectAccessReview that denies the request.
    pub denied_ttl: Duration,
}

/// Request headers of front proxies, and the trusted proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// CA of the proxies' client certificates. Without it, no proxy is trusted.
    pub client_ca: Option<String>,
    /// Allowed common names of proxies. Empty allows all.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name.
    pub username: Vec<String>,
    /// Headers with the user's uid.
    pub uid: Vec<String>,
    /// Headers with the user's groups.
    pub group: Vec<String>,
    /// Prefixes of headers with extra fields of the user.
    pub extra_prefix: Vec<String>,
}

impl ServingOptions {
    /// Returns warnings about valid but discouraged options.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.request_header.warnings();
        for cipher in self.tls.insecure_ciphers() {
            warnings.push(format!("Use of insecure cipher '{cipher}' detected."));
        }
        warnings
    }

    /// Reads and validates the flags.
    pub fn from_flags(read: &Reader, gates: &FeatureGates) -> Self {
        let port = read.int("secure-port");
        if port > 65535 {
            let rule = "must be between 1 and 65535, inclusive. It cannot be turned off with 0";
            read.record_invalid("secure-port", format!("--secure-port {port} {rule}"));
        } else if port < 0 {
            let rule = "must be between 0 and 65535, inclusive. 0 for turning off secure port";
            read.record_invalid("secure-port", format!("--secure-port {port} {rule}"));
        }
        let certificate = match (
            read.non_empty_text("tls-cert-file"),
            read.non_empty_text("tls-private-key-file"),
        ) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let rule = "--tls-cert-file and --tls-private-key-file must be given together";
                read.record_invalid("tls-cert-file", rule);
                None
            }
        };
        let streams = u32::try_from(read.int("http2-max-streams-per-connection")).ok();
        Self {
            address: read.ip("bind-address"),
            port: u16::try_from(port).unwrap_or_default(),
            certificate,
            cert_dir: read.non_empty_text("cert-dir"),
            tls: TlsOptions::from_flags(read),
            http2: !read.bool("disable-http2-serving"),
            http2_streams: streams.filter(|streams| *streams > 0),
            share_address: read.bool("permit-address-sharing"),
            share_port: read.bool("permit-port-sharing"),
            authentication_kubeconfig: read.non_empty_text("authentication-kubeconfig"),
            authorization_kubeconfig: read.non_empty_text("authorization-kubeconfig"),
            client_ca: read.non_empty_text("client-ca-file"),
            request_header: RequestHeader::from_flags(read, gates),
            skip_lookup: read.bool("authentication-skip-lookup"),
            tolerate_lookup_failure: read.bool("authentication-tolerate-lookup-failure"),
            always_allow: read.list("authorization-always-allow-paths"),
            token_ttl: read.duration("authentication-token-webhook-cache-ttl"),
            granted_ttl: read.duration("authorization-webhook-cache-authorized-ttl"),
            denied_ttl: read.duration("authorization-webhook-cache-unauthorized-ttl"),
        }
    }
}

impl RequestHeader {
    /// Reads and validates the flags.
    ///
    /// Upstream: `RequestHeaderAuthenticationOptions.Validate`.
    pub fn from_flags(read: &Reader, gates: &FeatureGates) -> Self {
        let list = |flag: &str| {
            let list = read.list(flag);
            if list.iter().any(|item| item.trim().is_empty()) {
                read.record_invalid(flag, format!("empty value in {flag:?}"));
            }
            list
        };
        let header = Self {
            client_ca: read.non_empty_text("requestheader-client-ca-file"),
            username: list("requestheader-username-headers"),
            group: list("requestheader-group-headers"),
            extra_prefix: list("requestheader-extra-headers-prefix"),
            allowed_names: list("requestheader-allowed-names"),
            uid: list("requestheader-uid-headers"),
        };
        let uid_flag = "requestheader-uid-headers";
        let has_standard = header.uid.iter().any(|name| name.eq_ignore_ascii_case("X-Remote-Uid"));
        if !header.uid.is_empty() && !gates.enabled("RemoteRequestHeaderUID") {
            read.record_invalid(uid_flag, "--requestheader-uid-headers requires the \"RemoteRequestHeaderUID\" feature to be enabled");
        } else if !header.uid.is_empty() && !has_standard {
            read.record_invalid(
                uid_flag,
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work",
            );
        }
        header
    }

    /// Returns warnings about missing headers that API aggregation needs.
    pub fn warnings(&self) -> Vec<String> {
        let lists = [
            ("requestheader-username-headers", &self.username, "X-Remote-User header"),
            ("requestheader-group-headers", &self.group, "X-Remote-Group header"),
            (
                "requestheader-extra-headers-prefix",
                &self.extra_prefix,
                "X-Remote-Extra- header prefix",
            ),
        ];
        let mut warnings = Vec::new();
        for (flag, list, standard) in lists {
            let name = standard.split(' ').next().unwrap_or_default();
            if !list.is_empty() && !list.iter().any(|item| item.eq_ignore_ascii_case(name)) {
                warnings.push(format!("--{flag} is set without specifying the standard {standard} - API aggregation will not work"));
            }
        }
        warnings
    }
}
