//! Bootstrap tokens, as stored in Secrets.

use evenkeel_api::{
    View as _,
    time::{self, Timestamp},
};
use evenkeel_runtime::cache::{Cache, Caches, Full};
use k8s_openapi::api::core::v1::Secret;
use std::{fmt, time::Duration};

/// Namespace of the token Secrets.
pub(super) const NAMESPACE: &str = "kube-system";

/// A Secret of the type `bootstrap.kubernetes.io/token`.
pub(super) type TokenSecret = Full<Secret>;

/// Returns the cache of the Secrets with the type of bootstrap tokens.
pub(super) fn token_secrets(caches: &Caches) -> Cache<TokenSecret> {
    caches.selected("", "type=bootstrap.kubernetes.io/token")
}

/// Remaining lifetime of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// The token has no expiration.
    Unlimited,
    /// The token expires after this duration.
    Remaining(Duration),
    /// The token has expired, or its expiration is invalid.
    Expired,
}

/// Returns the token's remaining lifetime. Upstream: `GetExpiration`.
pub(super) fn remaining_lifetime(secret: &TokenSecret, now: Timestamp) -> Lifetime {
    let text = value(secret, "expiration");
    if text.is_empty() {
        return Lifetime::Unlimited;
    }
    let Ok(expiration) = time::parse(text) else { return Lifetime::Expired };
    match Duration::try_from(expiration.duration_since(now)) {
        Ok(remaining) if !remaining.is_zero() => Lifetime::Remaining(remaining),
        _ => Lifetime::Expired,
    }
}

/// A valid token that signs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SigningToken<'a> {
    /// Token id, which is public.
    pub(super) id: &'a str,
    /// Token secret, which is never logged.
    pub(super) secret: &'a str,
}

impl fmt::Debug for SigningToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningToken").field(&self.id).finish()
    }
}

/// Returns the token if it is valid, may be used for signing, and matches the Secret's name. Upstream:
/// `validateSecretForSigning`.
pub(super) fn signing_token(secret: &TokenSecret, now: Timestamp) -> Option<SigningToken<'_>> {
    let token =
        SigningToken { id: value(secret, "token-id"), secret: value(secret, "token-secret") };
    let id_in_name = secret.meta().name.strip_prefix("bootstrap-token-")?;
    let is_valid = id_in_name == token.id
        && is_token_id(token.id)
        && !token.secret.is_empty()
        && value(secret, "usage-bootstrap-signing") == "true"
        && remaining_lifetime(secret, now) != Lifetime::Expired;
    is_valid.then_some(token)
}

/// Returns whether the ID consists of six lower-case letters and digits. Upstream: `IsValidBootstrapTokenID`.
fn is_token_id(text: &str) -> bool {
    text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Returns a value of the Secret as a string. A missing or invalid value becomes empty.
fn value<'a>(secret: &'a TokenSecret, key: &str) -> &'a str {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    bytes.and_then(|bytes| std::str::from_utf8(&bytes.0).ok()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fixtures::{at, object};
    use base64::prelude::*;
    use evenkeel_api::time::seconds;
    use serde_json::{Map, Value, json};

    /// Returns a token's Secret with this data in addition to the required data. An empty value removes a key.
    pub(in crate::bootstrap) fn secret(id: &str, data: &[(&str, &str)]) -> TokenSecret {
        let required = [
            ("token-id", id),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-signing", "true"),
        ];
        let mut encoded = Map::new();
        for (key, value) in required.iter().chain(data) {
            encoded.insert((*key).to_owned(), json!(BASE64_STANDARD.encode(value)));
        }
        encoded.retain(|_, value| value != &Value::from(""));
        object(&json!({
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": NAMESPACE, "uid": id},
            "type": "bootstrap.kubernetes.io/token", "data": encoded,
        }))
    }

    #[test]
    fn lifetime_ends_at_the_expiration() {
        let lifetime = |expiration: &str| {
            remaining_lifetime(&secret("abcdef", &[("expiration", expiration)]), at(0))
        };
        assert_eq!(lifetime(""), Lifetime::Unlimited);
        assert_eq!(lifetime("tomorrow"), Lifetime::Expired);
        assert_eq!(lifetime(&seconds(at(0))), Lifetime::Expired);
        assert_eq!(lifetime(&seconds(at(-1))), Lifetime::Expired);
        assert_eq!(lifetime(&seconds(at(60))), Lifetime::Remaining(Duration::from_secs(60)));
        assert_eq!(lifetime("2100-01-01T01:00:00+01:00"), lifetime("2100-01-01T00:00:00Z"));
    }

    #[test]
    fn only_valid_tokens_sign() {
        let valid_secret = secret("abcdef", &[]);
        let token = signing_token(&valid_secret, at(0)).unwrap();
        assert_eq!((token.id, token.secret), ("abcdef", "0123456789abcdef"));
        assert!(!format!("{token:?}").contains(token.secret));
        let invalid: [(&str, &[(&str, &str)]); 7] = [
            ("abcdef", &[("token-id", "other1")]),
            ("abcdef", &[("token-secret", "")]),
            ("abcdef", &[("usage-bootstrap-signing", "yes")]),
            ("abcdef", &[("usage-bootstrap-signing", "")]),
            ("abcdef", &[("expiration", "never")]),
            ("abcdefg", &[]),
            ("ABCDEF", &[]),
        ];
        for (id, data) in invalid {
            assert_eq!(signing_token(&secret(id, data), at(0)), None, "{id} {data:?}");
        }
    }
}
