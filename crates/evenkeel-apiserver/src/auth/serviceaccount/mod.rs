//! Issuer of service account tokens: signs tokens, validates them, and publishes its public keys.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | TokenRequest tokens: expiry, bound objects, deletion | `bound::validate` |
//! | Tokens of Secrets: validity, last use | `legacy::validate` |
//! | A token is valid for the audiences that it lists, or for the server's audiences if it lists none | `authenticate` |
//! | Tokens of earlier keys and issuers stay valid while the flags still list these keys and issuers | `authenticate` |
//! | `/.well-known/openid-configuration`, `/openid/v1/jwks` | `openid::configuration`, `openid::keys` |

mod bound;
mod info;
mod legacy;
mod openid;

use jiff::Timestamp;
use serde_json::Value;

use super::jose::{Jws, PublicKey, Signer};
use super::response::{Notes, Outcome, Response, UsedSecret, intersect};
use crate::store::Store;
use bound::Lookup;
use evenkeel_apimachinery::value::text;

pub(crate) use bound::Claims;
pub(crate) use info::{node_name, split_username, user_of};
pub(crate) use legacy::LAST_USED;

/// Settings of the issuer.
pub(crate) struct ServiceAccountOptions {
    /// Signer of new tokens.
    pub(crate) signer: Signer,
    /// Keys that verify tokens, in addition to the signer's own key.
    pub(crate) keys: Vec<PublicKey>,
    /// URLs of the issuer. New tokens name the first one; the server accepts tokens of all of them.
    pub(crate) issuers: Vec<String>,
    /// Audiences that this server identifies itself with.
    pub(crate) audiences: Vec<String>,
    /// URL at which the server publishes its keys.
    pub(crate) jwks_uri: String,
}

/// Issuer and validator of service account tokens.
///
/// Upstream: `JWTTokenGenerator`, `JWTTokenAuthenticator`.
pub(crate) struct ServiceAccounts {
    signer: Signer,
    /// Keys that verify tokens. The signer's own key is first.
    keys: Vec<PublicKey>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    jwks_uri: String,
}

impl ServiceAccounts {
    pub(crate) fn new(options: ServiceAccountOptions) -> Self {
        let ServiceAccountOptions { signer, keys: further_keys, issuers, audiences, jwks_uri } =
            options;
        let mut keys = vec![signer.public().clone()];
        for key in further_keys {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Self { signer, keys, issuers, audiences, jwks_uri }
    }

    /// Returns the server's audiences. They are the default for token requests without audiences.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    pub(crate) fn signing_key_pem(&self) -> &str {
        self.signer.pem()
    }

    /// Returns a signed token, or `None` if the random number generator fails.
    pub(crate) fn sign(&self, claims: &Claims<'_>) -> Option<String> {
        self.signer.sign(&claims.to_json(self.issuers.first().map_or("", String::as_str)))
    }

    /// Validates a token for the requested audiences.
    ///
    /// Upstream: `jwtTokenAuthenticator.AuthenticateToken`.
    pub(crate) fn authenticate(
        &self,
        store: &Store,
        now: Timestamp,
        token: &str,
        requested_audiences: &[String],
        notes: &mut Notes,
    ) -> Outcome {
        let lookup =
            |resource_prefix: &str, key: &str| store.get(resource_prefix, key)?.decode().ok();
        self.authenticate_with(&lookup, now, token, requested_audiences, notes)
    }

    /// Validates a token like [`authenticate`](Self::authenticate), with `lookup` in place of the store.
    fn authenticate_with(
        &self,
        lookup: Lookup<'_>,
        now: Timestamp,
        token: &str,
        requested_audiences: &[String],
        notes: &mut Notes,
    ) -> Outcome {
        let Some(jws) = Jws::parse(token) else { return Ok(None) };
        let Some(claims) = jws.claims() else { return Ok(None) };
        let issuer = text(&claims, "iss");
        let is_legacy = issuer == legacy::ISSUER;
        if !is_legacy && !self.issuers.iter().any(|known| known == issuer) {
            return Ok(None);
        }
        let id = jws.key_id();
        let mut keys = self.keys.iter().filter(|key| id.is_empty() || key.id() == id).peekable();
        if keys.peek().is_none() {
            return Err("invalid signature, no keys found".to_owned());
        }
        if !keys.any(|key| key.verifies(&jws)) {
            return Err("error in cryptographic primitive".to_owned());
        }
        let mut token_audiences = listed_audiences(&claims);
        if token_audiences.is_empty() {
            token_audiences.clone_from(&self.audiences);
        }
        let audiences = intersect(&token_audiences, requested_audiences);
        if audiences.is_empty() {
            return Err(format!(
                "token audiences {token_audiences:?} is invalid for the target audiences {requested_audiences:?}"
            ));
        }
        let account = if is_legacy {
            let used = legacy::validate(&claims, token, now, lookup)?;
            let (namespace, name) = used.secret;
            notes.used_secret = used.last_used.map(|day| UsedSecret { namespace, name, day });
            notes.warning = used.autogenerated.then_some(legacy::AUTOGENERATED);
            used.account?
        } else {
            bound::validate(&claims, now, lookup)?
        };
        Ok(Some(Response { user: account.user(), audiences }))
    }

    /// Returns the document at `/.well-known/openid-configuration`.
    pub(crate) fn openid_configuration(&self) -> Value {
        let issuer = self.issuers.first().map_or("", String::as_str);
        openid::configuration(issuer, &self.jwks_uri, &self.keys)
    }

    /// Returns the document at `/openid/v1/jwks`.
    pub(crate) fn jwks(&self) -> Value {
        openid::keys(&self.keys)
    }
}

/// Returns the audiences that a token lists. The claim is a string or a list of strings.
fn listed_audiences(claims: &Value) -> Vec<String> {
    match claims.get("aud") {
        Some(Value::String(audience)) => vec![audience.clone()],
        Some(Value::Array(audiences)) => {
            audiences.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
