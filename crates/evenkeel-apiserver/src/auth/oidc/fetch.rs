//! Fetches an issuer's metadata when the server starts, and its keys every hour and when a token has an unknown key.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_api::json;
use evenkeel_apimachinery::value::{list, text};
use evenkeel_x509::CertPool;
use http::{Request, Uri};
use http_body_util::Full;
use serde_json::Value;

use super::super::jose::PublicKey;
use super::keys::RemoteKeySet;
use crate::https::{self, Address};

/// Path of an issuer's metadata below the issuer's URL.
const METADATA_PATH: &str = "/.well-known/openid-configuration";
/// Delay until the retry of a failed request.
const RETRY_PERIOD: Duration = Duration::from_secs(10);
/// Time between two fetches of the keys. A key that the issuer withdraws verifies tokens until the next fetch.
const REFRESH_PERIOD: Duration = Duration::from_secs(60 * 60);
/// Minimum time between two fetches, even if a token requests newer keys earlier.
const MIN_PERIOD: Duration = Duration::from_secs(1);
/// Timeout of a request to the issuer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an issuer's response, in bytes.
const MAX_RESPONSE_SIZE: usize = 1024 * 1024;

/// Addresses of an issuer.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) issuer: String,
    /// URL of the metadata; empty for the well-known path below the issuer's URL.
    pub(super) discovery_url: String,
    /// Certificate authorities that the issuer's server is verified with.
    pub(super) roots: CertPool,
}

/// Keeps `keys` up to date until the server shuts down.
pub(super) async fn run(source: Source, keys: Arc<RemoteKeySet>) {
    let uri = loop {
        match discover_keys_url(&source).await {
            Ok(uri) => break uri,
            Err(error) => {
                tracing::error!(
                    issuer = source.issuer,
                    error,
                    "the keys of a token issuer cannot be found; trying again"
                );
                tokio::time::sleep(RETRY_PERIOD).await;
            }
        }
    };
    loop {
        let fetched = fetch_keys(&source, &uri).await.inspect_err(|error| {
            tracing::error!(
                issuer = source.issuer,
                error,
                "the keys of a token issuer cannot be fetched; trying again"
            );
        });
        let period = if fetched.is_ok() { REFRESH_PERIOD } else { RETRY_PERIOD };
        keys.publish(fetched.ok());
        tokio::time::sleep(MIN_PERIOD).await;
        let _ = tokio::time::timeout(period, keys.refresh_requested()).await;
    }
}

/// Returns the URL of the issuer's keys from its metadata.
///
/// Upstream: `NewProvider` of go-oidc.
async fn discover_keys_url(source: &Source) -> Result<Uri, String> {
    let url = match &*source.discovery_url {
        "" => format!("{}{METADATA_PATH}", source.issuer.trim_end_matches('/')),
        url => url.to_owned(),
    };
    let metadata = get(source, &parse_https(&url)?).await?;
    let issuer = text(&metadata, "issuer");
    if issuer != source.issuer {
        return Err(format!(
            "oidc: issuer did not match the issuer returned by provider, expected {:?} got {issuer:?}",
            source.issuer
        ));
    }
    parse_https(text(&metadata, "jwks_uri"))
}

/// Fetches the issuer's keys. Skips keys of unsupported types.
async fn fetch_keys(source: &Source, uri: &Uri) -> Result<Vec<PublicKey>, String> {
    let document = get(source, uri).await?;
    Ok(list(&document, "keys").iter().filter_map(PublicKey::from_jwk).collect())
}

/// Gets a JSON document from the issuer.
async fn get(source: &Source, uri: &Uri) -> Result<Value, String> {
    let authority = uri.authority().ok_or_else(|| format!("{uri} names no host"))?;
    let request = Request::get(uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str))
        .header("host", authority.as_str())
        .header("accept", "application/json")
        .body(Full::new(Bytes::new()))
        .map_err(|error| error.to_string())?;
    let address = Address::from_authority(authority);
    let response = https::send(&address, &source.roots, request, MAX_RESPONSE_SIZE);
    let failed = |why: &str| format!("Get \"{uri}\": {why}");
    let (code, body) = tokio::time::timeout(REQUEST_TIMEOUT, response)
        .await
        .map_err(|_| failed("context deadline exceeded"))?
        .map_err(|why| failed(&why))?;
    if !code.is_success() {
        return Err(failed(&format!("the issuer answers {code}")));
    }
    json::from_slice(&body).map_err(|error| failed(&error.to_string()))
}

/// Parses a URL, whose scheme must be `https`.
fn parse_https(url: &str) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{url:?}: {error}"))?;
    if uri.scheme_str() != Some("https") {
        return Err(format!("{url:?}: URL scheme must be https"));
    }
    Ok(uri)
}
