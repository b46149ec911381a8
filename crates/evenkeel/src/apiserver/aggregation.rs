//! Options of aggregation and of front proxies, from kube-apiserver's flags.

use crate::server;
use anyhow::Result;
use evenkeel_apiserver::{AggregationOptions, RequestHeaderOptions};
use evenkeel_component::{features::FeatureGates, flags::Reader, options::RequestHeader};
use std::path::{Path, PathBuf};

/// Validated options. The files are read when the server starts.
#[derive(Debug)]
pub(super) struct AggregationFlags {
    /// Files of the certificate chain and of its key that identify the server to extension API servers.
    pub(super) proxy_client: Option<[PathBuf; 2]>,
    /// Whether redirects of extension API servers reach clients.
    pub(super) forward_redirects: bool,
    /// File of the authorities of front proxies, and the names of headers.
    pub(super) request_header: RequestHeader,
}

/// Reads the flags.
pub(super) fn flags(read: &Reader, gates: &FeatureGates) -> AggregationFlags {
    AggregationFlags {
        // Evenkeel refuses one of these flags without the other. Upstream then presents no certificate to extension API
        // servers.
        proxy_client: server::certificate_and_key(
            read,
            "proxy-client-cert-file",
            "proxy-client-key-file",
        ),
        forward_redirects: !read.bool("aggregator-reject-forwarding-redirect"),
        request_header: RequestHeader::from_flags(read, gates),
    }
}

impl AggregationFlags {
    /// Reads the files of the proxy's certificate and key.
    pub(super) fn options(&self) -> Result<AggregationOptions> {
        let proxy_client = self.proxy_client.as_ref().map(|[chain, key]| {
            let chain = server::read_file("proxy-client-cert-file", chain)?;
            Ok::<_, anyhow::Error>((chain, server::read_file("proxy-client-key-file", key)?))
        });
        let proxy_client = proxy_client.transpose()?;
        Ok(AggregationOptions { proxy_client, forward_redirects: self.forward_redirects })
    }

    /// Reads the file of the front proxies' authorities. Without this file, no front proxy is trusted.
    pub(super) fn request_header(&self) -> Result<Option<RequestHeaderOptions>> {
        let header = self.request_header.clone();
        let Some(path) = header.client_ca else { return Ok(None) };
        Ok(Some(RequestHeaderOptions {
            client_ca: server::read_file("requestheader-client-ca-file", Path::new(&path))?,
            allowed_names: header.allowed_names,
            username_headers: header.username,
            uid_headers: header.uid,
            group_headers: header.group,
            extra_headers_prefix: header.extra_prefix,
        }))
    }
}
