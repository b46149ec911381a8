//! Options of aggregation and of front proxies, from kube-apiserver's flags.

use crate::server;
use anyhow::Result;
use evenkeel_apiserver::{AggregationOptions, RequestHeaderOptions};
use evenkeel_component::flags::Reader;
use std::path::PathBuf;

/// Flags with names of headers, and the name without which aggregation does not work.
const STANDARD: [(&str, &str, &str); 3] = [
    ("requestheader-username-headers", "X-Remote-User", "header"),
    ("requestheader-group-headers", "X-Remote-Group", "header"),
    ("requestheader-extra-headers-prefix", "X-Remote-Extra-", "header prefix"),
];

/// Validated options. The files are read when the server starts.
#[derive(Debug)]
pub(super) struct AggregationFlags {
    /// Files of the certificate chain and of its key that identify the server to extension API servers.
    pub(super) proxy_client: Option<[PathBuf; 2]>,
    pub(super) rejects_redirects: bool,
    /// File of the authorities of front proxies, and the names of headers.
    pub(super) request_header: Option<(PathBuf, RequestHeaderOptions)>,
}

/// Reads the flags.
///
/// Upstream: `RequestHeaderAuthenticationOptions.Validate`.
pub(super) fn flags(read: &Reader) -> AggregationFlags {
    let path = |flag| read.non_empty_text(flag).map(PathBuf::from);
    let proxy_client = match ["proxy-client-cert-file", "proxy-client-key-file"].map(path) {
        [Some(chain), Some(key)] => Some([chain, key]),
        [None, None] => None,
        _ => {
            let why = "--proxy-client-cert-file and --proxy-client-key-file must be set together";
            read.record_invalid("proxy-client-cert-file", why);
            None
        }
    };
    let names = |flag| {
        let names = read.list(flag);
        if names.iter().any(|name: &String| name.trim().is_empty()) {
            read.record_invalid(flag, format!("empty value in {flag:?}"));
        }
        names
    };
    let options = RequestHeaderOptions {
        client_ca: String::new(),
        allowed_names: names("requestheader-allowed-names"),
        username_headers: names("requestheader-username-headers"),
        uid_headers: names("requestheader-uid-headers"),
        group_headers: names("requestheader-group-headers"),
        extra_headers_prefix: names("requestheader-extra-headers-prefix"),
    };
    if lacks(&options.uid_headers, "X-Remote-Uid") {
        let flag = "requestheader-uid-headers";
        read.record_invalid(flag, without(flag, "X-Remote-Uid", "header"));
    }
    AggregationFlags {
        proxy_client,
        rejects_redirects: read.bool("aggregator-reject-forwarding-redirect"),
        request_header: path("requestheader-client-ca-file").map(|path| (path, options)),
    }
}

/// Returns a warning for each flag that lacks a standard header.
pub(super) fn warnings(read: &Reader) -> Vec<String> {
    let missing = STANDARD.iter().filter(|(flag, name, _)| lacks(&read.list(flag), name));
    missing.map(|(flag, name, what)| without(flag, name, what)).collect()
}

fn lacks(names: &[String], standard: &str) -> bool {
    !names.is_empty() && !names.iter().any(|name| name.eq_ignore_ascii_case(standard))
}

fn without(flag: &str, name: &str, what: &str) -> String {
    format!(
        "--{flag} is set without specifying the standard {name} {what} - API aggregation will not work"
    )
}

impl AggregationFlags {
    /// Reads the files of the proxy's certificate and key.
    pub(super) fn options(&self) -> Result<AggregationOptions> {
        let proxy_client = self.proxy_client.as_ref().map(|[chain, key]| {
            let chain = server::read("proxy-client-cert-file", chain)?;
            Ok::<_, anyhow::Error>((chain, server::read("proxy-client-key-file", key)?))
        });
        let proxy_client = proxy_client.transpose()?;
        Ok(AggregationOptions { proxy_client, forward_redirects: !self.rejects_redirects })
    }

    /// Reads the file of the front proxies' authorities.
    pub(super) fn request_header(&self) -> Result<Option<RequestHeaderOptions>> {
        let Some((path, options)) = &self.request_header else { return Ok(None) };
        let client_ca = server::read("requestheader-client-ca-file", path)?;
        Ok(Some(RequestHeaderOptions { client_ca, ..options.clone() }))
    }
}
