//! Authentication by JSON web tokens that an issuer other than this server signed, such as OpenID Connect ID tokens.
//! The issuer publishes the keys that verify them.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | The rules for the configuration file | `validation::compile` |
//! | The issuer's metadata names the URL of its keys | `fetch::run` |
//! | A token with an unknown key triggers a fetch of the keys | `keys::verify` |
//! | A token needs a valid signature, a configured audience, and an expiry in the future | `authenticate` |
//! | The server applies a changed file without a restart | `source::follow`, `tracker::next` |
//! | Claims with prefixes, or CEL expressions, determine the user | `mapper::user`, `expression::compile` |
//!
//! The server does not resolve distributed claims (`_claim_sources`): such a token has no groups.

mod authenticators;
mod config;
mod expression;
mod fetch;
mod keys;
mod mapper;
mod source;
mod tracker;
mod validation;

use std::sync::Arc;

use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::text;
use evenkeel_x509::CertPool;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use super::jose::Jws;
use config::{AnonymousConfig, AuthenticationConfiguration, Issuer};
use keys::RemoteKeySet;
use mapper::Mapper;
pub(crate) use source::Source;

/// Tolerance for clock skew in the claim `nbf` (not before), in seconds.
const NOT_BEFORE_LEEWAY: f64 = 60.0;

/// Authenticator for the tokens of one issuer.
pub(crate) struct JwtAuthenticator {
    issuer: Issuer,
    mapper: Mapper,
    keys: Arc<RemoteKeySet>,
}

/// Compiled content of an authentication configuration file.
pub(crate) struct Configured {
    jwt: Vec<JwtAuthenticator>,
    /// `None` if the file does not configure anonymous requests.
    anonymous: Option<AnonymousConfig>,
}

/// Parses and validates a configuration file. `disallowed_issuers` are the issuers of service account tokens, which the
/// file must not name.
///
/// # Errors
/// Returns the messages of all validation errors, each with the path of its field.
pub(crate) fn configure(text: &[u8], disallowed_issuers: &[String]) -> Result<Configured, String> {
    let config = AuthenticationConfiguration::parse(text)?;
    let mappers = validation::compile(&config, disallowed_issuers).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        errors.join("; ")
    })?;
    let authenticators = config
        .jwt
        .into_iter()
        .zip(mappers)
        .map(|(jwt, mapper)| JwtAuthenticator { issuer: jwt.issuer, mapper, keys: Arc::default() });
    Ok(Configured { jwt: authenticators.collect(), anonymous: config.anonymous })
}

impl JwtAuthenticator {
    /// Returns a function that starts the task which fetches the issuer's keys. The task may be started again after a
    /// panic.
    pub(crate) fn key_fetcher(
        &self,
    ) -> impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static {
        let pem = self.issuer.certificate_authority.as_bytes();
        let roots = match pem {
            [] => CertPool::system(),
            // The validation of the configuration has already parsed this PEM.
            pem => CertPool::from_pem(pem).unwrap_or_else(|_| CertPool::empty()),
        };
        let source = fetch::Source {
            issuer: self.issuer.url.clone(),
            discovery_url: self.issuer.discovery_url.clone(),
            roots,
        };
        let keys = self.keys.clone();
        move || Box::pin(fetch::run(source.clone(), keys.clone()))
    }

    /// Returns the user of a token, or `None` if it is not a token of this issuer.
    ///
    /// Upstream: `jwtAuthenticator.AuthenticateToken`.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<User>, String> {
        let Some(jws) = Jws::parse(token) else { return Ok(None) };
        let Some(claims) = jws.claims() else { return Ok(None) };
        if issuer_url(text(&claims, "iss")) != self.issuer.url {
            return Ok(None);
        }
        self.keys.verify(&jws).await?;
        check_audience_and_times(&claims, &self.issuer.audiences, now)
            .map_err(|why| format!("oidc: verify token: {why}"))?;
        self.mapper.user(&claims).map(Some)
    }
}

/// Returns the issuer's URL from the claim `iss`. Google's tokens may lack the scheme.
fn issuer_url(issuer: &str) -> &str {
    if issuer == "accounts.google.com" { "https://accounts.google.com" } else { issuer }
}

/// Refuses a token that has none of the configured audiences, has expired, or is not valid yet.
///
/// Upstream: `IDTokenVerifier.Verify` of go-oidc, `verifyAudience`.
fn check_audience_and_times(
    claims: &Value,
    configured_audiences: &[String],
    now: Timestamp,
) -> Result<(), String> {
    let token_audiences: Vec<&str> = match claims.get("aud") {
        Some(Value::String(audience)) => vec![audience],
        Some(Value::Array(audiences)) => audiences.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let has_audience =
        configured_audiences.iter().any(|audience| token_audiences.contains(&audience.as_str()));
    if !has_audience {
        return Err(format!(
            "oidc: expected audience in {configured_audiences:?} got {token_audiences:?}"
        ));
    }
    let now = now.as_second() as f64;
    // Times are seconds since the epoch.
    let time = |claim: &str| claims.get(claim).and_then(Value::as_f64);
    match time("exp") {
        Some(expiry) if now <= expiry => {}
        _ => return Err("oidc: token is expired".to_owned()),
    }
    if time("nbf").is_some_and(|not_before| now + NOT_BEFORE_LEEWAY < not_before) {
        return Err("oidc: current time before the nbf (not before) time".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
