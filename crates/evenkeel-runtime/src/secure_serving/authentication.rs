//! Authenticates requests by the front proxy's headers, then by client certificate, then by bearer token. A
//! request without credentials is anonymous. Invalid credentials reject the request, unless it also has valid
//! ones.
//!
//! Upstream: `DelegatingAuthenticatorConfig`.

use super::{
    headers::text,
    metrics::Metrics,
    reviews::ReviewClient,
    trust::{Anchors, Authority, ProxyHeaders, Trust},
    user::{User, common_name, remaining_validity},
};
use crate::clock::Clock;
use http::{HeaderMap, header};
use percent_encoding::percent_decode_str;
use rustls::pki_types::{CertificateDer, UnixTime};
use std::{collections::BTreeMap, time::Duration};

/// Result of one authenticator.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AuthenticatorResult {
    /// The credentials belong to this user.
    Authenticated(User),
    /// The request has no such credentials.
    NoCredentials,
    /// The credentials are invalid, for this reason.
    Invalid(String),
}

/// Authenticator of requests.
///
/// Upstream: `DelegatingAuthenticatorConfig`.
pub(super) struct DelegatingAuthenticator {
    pub(super) trust: Trust,
    pub(super) tokens: Option<ReviewClient>,
    pub(super) clock: Clock,
    pub(super) metrics: Option<Metrics>,
}

impl DelegatingAuthenticator {
    /// Authenticates a request by its headers and the connection's certificates.
    pub(super) async fn authenticate_request(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'_>],
    ) -> Result<User, String> {
        let (anchors, now) = (self.trust.current(), unix_time(&self.clock));
        if let (Some(metrics), Some(leaf), Some(_)) =
            (&self.metrics, chain.first(), &anchors.clients)
        {
            metrics.observe_certificate_validity(remaining_validity(leaf, now));
        }
        let mut errors = Vec::new();
        let from_proxy = authenticate_proxy(&anchors, headers, chain, now);
        let from_certificate = authenticate_certificate(&anchors, chain, now);
        for result in [from_proxy, from_certificate] {
            match result {
                AuthenticatorResult::Authenticated(user) => {
                    return Ok(user.with_authenticated_group());
                }
                AuthenticatorResult::NoCredentials => {}
                AuthenticatorResult::Invalid(why) => errors.push(why),
            }
        }
        match self.authenticate_bearer_token(headers).await {
            AuthenticatorResult::Authenticated(user) => return Ok(user.with_authenticated_group()),
            AuthenticatorResult::NoCredentials => {}
            AuthenticatorResult::Invalid(why) => errors.push(why),
        }
        if errors.is_empty() { Ok(User::anonymous()) } else { Err(errors.join(", ")) }
    }

    async fn authenticate_bearer_token(&self, headers: &HeaderMap) -> AuthenticatorResult {
        // Without a client for TokenReviews, a token is ignored.
        let (Some(token), Some(reviews)) = (bearer_token(headers), &self.tokens) else {
            return AuthenticatorResult::NoCredentials;
        };
        match reviews.authenticate_token(token).await {
            Ok(Some(user)) => AuthenticatorResult::Authenticated(user),
            Ok(None) => AuthenticatorResult::Invalid("invalid bearer token".to_owned()),
            Err(error) => AuthenticatorResult::Invalid(error),
        }
    }
}

fn unix_time(clock: &Clock) -> UnixTime {
    let seconds = u64::try_from(clock.now().as_second()).unwrap_or_default();
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// Returns the token of `Authorization: Bearer TOKEN`.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = text(headers.get(header::AUTHORIZATION)?)?.trim();
    let mut parts = value.split(' ');
    let is_bearer = parts.next()?.eq_ignore_ascii_case("bearer");
    parts.next().filter(|token| is_bearer && !token.is_empty())
}

/// Authenticates by the client certificate: `chain` is the certificate with its intermediates.
fn authenticate_certificate(
    anchors: &Anchors,
    chain: &[CertificateDer<'_>],
    now: UnixTime,
) -> AuthenticatorResult {
    let (Some(authority), Some(leaf)) = (&anchors.clients, chain.first()) else {
        return AuthenticatorResult::NoCredentials;
    };
    match authority.verify_chain(chain, now) {
        Err(why) => AuthenticatorResult::Invalid(format!("client certificate: {why}")),
        Ok(()) => User::from_certificate(leaf)
            .map_or(AuthenticatorResult::NoCredentials, AuthenticatorResult::Authenticated),
    }
}

/// Authenticates by the headers of a front proxy, whose own client certificate must be trusted.
fn authenticate_proxy(
    anchors: &Anchors,
    headers: &HeaderMap,
    chain: &[CertificateDer<'_>],
    now: UnixTime,
) -> AuthenticatorResult {
    let (Some((authority, header_names)), Some(leaf)) = (&anchors.proxies, chain.first()) else {
        return AuthenticatorResult::NoCredentials;
    };
    match verify_proxy(authority, header_names, chain, leaf, now) {
        Err(why) => AuthenticatorResult::Invalid(format!("certificate of a proxy: {why}")),
        Ok(()) => user_from_headers(header_names, headers)
            .map_or(AuthenticatorResult::NoCredentials, AuthenticatorResult::Authenticated),
    }
}

/// Verifies that a certificate chain belongs to a trusted front proxy with an allowed common name.
fn verify_proxy(
    authority: &Authority,
    header_names: &ProxyHeaders,
    chain: &[CertificateDer<'_>],
    leaf: &CertificateDer<'_>,
    now: UnixTime,
) -> Result<(), String> {
    authority.verify_chain(chain, now)?;
    if header_names.allowed_names.is_empty() {
        return Ok(());
    }
    let name = common_name(leaf);
    if header_names.allowed_names.contains(&name) {
        return Ok(());
    }
    Err(format!("the common name {name:?} is not in the allowed list"))
}

/// Returns the user in the front proxy's headers.
fn user_from_headers(header_names: &ProxyHeaders, headers: &HeaderMap) -> Option<User> {
    let first_value = |name: &String| {
        let value = text(headers.get(name)?)?;
        (!value.is_empty()).then(|| value.to_owned())
    };
    let name = header_names.username.iter().find_map(first_value)?;
    let uid = header_names.uid.iter().find_map(first_value).unwrap_or_default();
    let group_headers = header_names.group.iter().flat_map(|name| headers.get_all(name));
    let groups = group_headers.filter_map(text).filter(|value| !value.is_empty());
    let groups = groups.map(str::to_owned).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in &header_names.extra_prefix {
        // The names of the request's headers are in lower case.
        let prefix = prefix.to_ascii_lowercase();
        for (name, value) in headers {
            let (Some(key), Some(value)) = (name.as_str().strip_prefix(&prefix), text(value))
            else {
                continue;
            };
            let decoded = percent_decode_str(key).decode_utf8();
            let key = decoded.map_or_else(|_| key.to_owned(), std::borrow::Cow::into_owned);
            extra.entry(key).or_default().push(value.to_owned());
        }
    }
    Some(User { name, uid, groups, extra })
}

#[cfg(test)]
mod tests;
