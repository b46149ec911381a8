//! Authentication by tokens of other issuers: OpenID Connect, or other JSON web tokens with published keys.
//!
//! | documented | where |
//! |---|---|
//! | The configuration file and its rules | `validation::compile` |
//! | The issuer's metadata names the URL of its keys | `fetch::run` |
//! | A token with an unknown key triggers a fetch of the keys | `keys::verify` |
//! | A token needs a valid signature, an audience of the server, and an expiry in the future | `authenticate` |
//! | Claims with prefixes, or CEL expressions, map to a user | `mapper::user`, `expression::compile` |
//!
//! The server does not resolve distributed claims (`_claim_sources`): such a token has no groups.

mod config;
mod expression;
mod fetch;
mod keys;
mod mapper;
mod validation;

use std::sync::Arc;

use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::text;
use evenkeel_x509::CertPool;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use super::anonymous::Anonymous;
use super::jose::Jws;
use config::{AuthenticationConfiguration, Issuer};
use keys::RemoteKeySet;
use mapper::Mapper;

/// Tolerance for the claim `nbf`, in seconds.
const LEEWAY: f64 = 60.0;

/// Authenticator for the tokens of one issuer.
pub(crate) struct JwtAuthenticator {
    issuer: Issuer,
    mapper: Mapper,
    keys: Arc<RemoteKeySet>,
}

/// Settings from a configuration file.
pub(crate) struct Configured {
    pub(crate) jwt: Vec<Arc<JwtAuthenticator>>,
    /// `None` if the file does not configure anonymous requests.
    pub(crate) anonymous: Option<Anonymous>,
}

/// Parses and checks a configuration file. `disallowed` are the issuers of service account tokens.
///
/// # Errors
/// All errors, with their fields.
pub(crate) fn configure(text: &[u8], disallowed: &[String]) -> Result<Configured, String> {
    let config = AuthenticationConfiguration::parse(text)?;
    let mappers = validation::compile(&config, disallowed).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        errors.join("; ")
    })?;
    let authenticators = config.jwt.into_iter().zip(mappers).map(|(jwt, mapper)| {
        Arc::new(JwtAuthenticator { issuer: jwt.issuer, mapper, keys: Arc::default() })
    });
    let anonymous = config.anonymous.map(|anonymous| Anonymous {
        enabled: anonymous.enabled,
        paths: anonymous.conditions.into_iter().map(|condition| condition.path).collect(),
    });
    Ok(Configured { jwt: authenticators.collect(), anonymous })
}

impl JwtAuthenticator {
    /// Returns a factory of the task that fetches the issuer's keys.
    pub(crate) fn fetch_keys(&self) -> impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static {
        let pem = self.issuer.certificate_authority.as_bytes();
        let roots = match pem {
            [] => CertPool::system(),
            // The configuration's check has already parsed this PEM.
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
        if canonical(text(&claims, "iss")) != self.issuer.url {
            return Ok(None);
        }
        self.keys.verify(&jws).await?;
        check(&claims, &self.issuer.audiences, now)
            .map_err(|why| format!("oidc: verify token: {why}"))?;
        self.mapper.user(&claims).map(Some)
    }
}

/// Returns the issuer's URL. Google's tokens may lack its scheme.
fn canonical(issuer: &str) -> &str {
    if issuer == "accounts.google.com" { "https://accounts.google.com" } else { issuer }
}

/// Refuses a token for other audiences, or outside of its period of validity.
///
/// Upstream: `IDTokenVerifier.Verify` of go-oidc, `verifyAudience`.
fn check(claims: &Value, audiences: &[String], now: Timestamp) -> Result<(), String> {
    let listed: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !listed.iter().any(|audience| audiences.iter().any(|wanted| wanted == audience)) {
        return Err(format!("oidc: expected audience in {audiences:?} got {listed:?}"));
    }
    let now = now.as_second() as f64;
    let time = |claim: &str| claims.get(claim).and_then(Value::as_f64);
    match time("exp") {
        Some(until) if now <= until => {}
        _ => return Err("oidc: token is expired".to_owned()),
    }
    if time("nbf").is_some_and(|from| now + LEEWAY < from) {
        return Err("oidc: current time before the nbf (not before) time".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
