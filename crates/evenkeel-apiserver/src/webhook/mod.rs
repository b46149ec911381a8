//! HTTPS requests to webhooks, by URL or by Service.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

pub(crate) mod budget;

use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use evenkeel_api::json;
use evenkeel_x509::CertPool;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use serde_json::Value;

use crate::api::Api;
use crate::backend;
use crate::https::{self, Address};
use evenkeel_apimachinery::value::{get, int, text};

/// Maximum size in bytes of the response to a request about one object.
pub(crate) const MAX_RESPONSE_SIZE: usize = 3 * 1024 * 1024;

/// Limits of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The timeout. It is raised or lowered to between 1 and 30 s.
    pub(crate) seconds: i64,
    /// Maximum size of the response in bytes.
    pub(crate) response_bytes: usize,
}

impl Limits {
    /// Returns the limits of a call about one object.
    pub(crate) fn of_seconds(seconds: i64) -> Self {
        Self { seconds, response_bytes: MAX_RESPONSE_SIZE }
    }
}

/// URL of a webhook, with the address to connect to.
struct WebhookUrl {
    /// URL for messages; for a Service, it names the Service.
    url: String,
    /// Name that the webhook's certificate must have.
    host: String,
    /// The header `Host`: the URL's host, with the port if it names one.
    authority: String,
    /// Host and port to connect to.
    address: String,
    path: String,
}

/// Posts `body` to the webhook of a `clientConfig`, and returns its response.
pub(crate) async fn post(
    api: &Api,
    config: &Value,
    body: &Value,
    limits: Limits,
) -> Result<Value, String> {
    let seconds = u64::try_from(limits.seconds).unwrap_or(1).clamp(1, 30);
    let webhook_url = webhook_url(api, config, seconds)?;
    let failed = |why: &str| format!("Post \"{}\": {why}", webhook_url.url);
    let request_future = async {
        let call = api.webhooks.begin(&webhook_url.url, api.clock.instant()).await;
        let call = call.map_err(|_| "too many calls are in flight without an answer".to_owned())?;
        let answer = exchange(&webhook_url, text(config, "caBundle"), body, limits).await;
        call.record_end(api.clock.instant());
        answer
    };
    match tokio::time::timeout(Duration::from_secs(seconds), request_future).await {
        Ok(Ok((code, bytes))) if code.is_success() => {
            json::from_slice(&bytes).map_err(|error| error.to_string())
        }
        Ok(Ok((code, bytes))) => Err(https::error_of_response(code, &bytes)),
        Ok(Err(why)) => Err(failed(&why)),
        Err(_) => Err(failed("context deadline exceeded")),
    }
}

/// Sends the request, and returns the status code and the body of the response.
async fn exchange(
    webhook_url: &WebhookUrl,
    ca_bundle: &str,
    body: &Value,
    limits: Limits,
) -> Result<(StatusCode, Bytes), String> {
    let bytes = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    let request = Request::post(&webhook_url.path)
        .header("host", &webhook_url.authority)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Full::new(Bytes::from(bytes)))
        .map_err(|error| error.to_string())?;
    let address = Address { host: webhook_url.host.clone(), address: webhook_url.address.clone() };
    https::send(&address, &roots(ca_bundle)?, request, limits.response_bytes).await
}

/// Returns the certificate authorities of a `caBundle` (PEM in base64), or the system's certificate authorities if it
/// is empty.
fn roots(ca_bundle: &str) -> Result<CertPool, String> {
    let pem =
        base64::prelude::BASE64_STANDARD.decode(ca_bundle).map_err(|error| error.to_string())?;
    if pem.is_empty() {
        return Ok(CertPool::system());
    }
    CertPool::from_pem(&pem).map_err(|error| format!("caBundle: {error}"))
}

/// Returns the URL of the webhook that a `clientConfig` names.
fn webhook_url(api: &Api, config: &Value, seconds: u64) -> Result<WebhookUrl, String> {
    if let Some(service) = get(config, "service") {
        return service_url(api, service, seconds);
    }
    let url = text(config, "url");
    let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
    let authority = uri.authority().ok_or_else(|| format!("{url} names no host"))?;
    let path = format!("{}?timeout={seconds}s", clean(uri.path()));
    let url = format!("https://{authority}{path}");
    let Address { host, address } = Address::from_authority(authority);
    Ok(WebhookUrl { url, host, authority: authority.to_string(), address, path })
}

/// Returns the URL of a webhook behind a Service, with the address of one of the Service's endpoints.
fn service_url(api: &Api, service: &Value, seconds: u64) -> Result<WebhookUrl, String> {
    let (name, namespace) = (text(service, "name"), text(service, "namespace"));
    let port = int(service, "port").unwrap_or(443);
    let path = format!("{}?timeout={seconds}s", clean(text(service, "path")));
    let host = format!("{name}.{namespace}.svc");
    let authority = format!("{host}:{port}");
    let url = format!("https://{authority}{path}");
    let failed = |why: String| format!("Post \"{url}\": {why}");
    let address = backend::address(api, namespace, name, port).map_err(failed)?;
    Ok(WebhookUrl { url, host, authority, address, path })
}

/// Returns a path without empty segments, `.`, `..` or a trailing slash, because a server's router may redirect such
/// paths.
///
/// Upstream: `DefaultVersionedAPIPath`.
fn clean(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("//failing", "/failing"),
            ("a/b/", "/a/b"),
            ("/a/./b//c", "/a/b/c"),
            ("/a/../b", "/b"),
            ("/../..", "/"),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
    }
}
