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
pub(super) fn secrets(caches: &Caches) -> Cache<TokenSecret> {
    caches.selected("", "type=bootstrap.kubernetes.io/token")
}

/// Remaining lifetime of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// The token has no expiration.
    Endless,
    /// The token expires after this duration.
    Left(Duration),
    /// The token has expired, or its expiration is invalid.
    Over,
}

/// Returns the token's remaining lifetime. Upstream: `GetExpiration`.
pub(super) fn life(secret: &TokenSecret, now: Timestamp) -> Life {
    let text = value(secret, "expiration");
    if text.is_empty() {
        return Life::Endless;
    }
    let Ok(end) = time::parse(text) else { return Life::Over };
    match Duration::try_from(end.duration_since(now)) {
        Ok(left) if !left.is_zero() => Life::Left(left),
        _ => Life::Over,
    }
}

/// A token for signing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// Token id, which is public.
    pub(super) id: &'a str,
    /// Token secret, which is never logged.
    pub(super) secret: &'a str,
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.id).finish()
    }
}

/// Returns the token if it is valid, may be used for signing, and matches the Secret's name. Upstream:
/// `validateSecretForSigning`.
pub(super) fn for_signing(secret: &TokenSecret, now: Timestamp) -> Option<Token<'_>> {
    let id = value(secret, "token-id");
    let named = secret.meta().name.strip_prefix("bootstrap-token-")?;
    let is_id =
        named.len() == 6 && named.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let token = Token { id, secret: value(secret, "token-secret") };
    let signs = value(secret, "usage-bootstrap-signing") == "true";
    let is_valid = is_id && named == id && !token.secret.is_empty() && signs;
    (is_valid && life(secret, now) != Life::Over).then_some(token)
}

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
        let mut all = Map::new();
        for (key, value) in required.iter().chain(data) {
            all.insert((*key).to_owned(), json!(BASE64_STANDARD.encode(value)));
        }
        all.retain(|_, value| value != &Value::from(""));
        object(&json!({
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": NAMESPACE, "uid": id},
            "type": "bootstrap.kubernetes.io/token", "data": all,
        }))
    }

    #[test]
    fn lifetime_ends_at_the_expiration() {
        let of = |text: &str| life(&secret("abcdef", &[("expiration", text)]), at(0));
        assert_eq!(of(""), Life::Endless);
        assert_eq!(of("tomorrow"), Life::Over);
        assert_eq!(of(&seconds(at(0))), Life::Over);
        assert_eq!(of(&seconds(at(-1))), Life::Over);
        assert_eq!(of(&seconds(at(60))), Life::Left(Duration::from_secs(60)));
        assert_eq!(of("2100-01-01T01:00:00+01:00"), of("2100-01-01T00:00:00Z"));
    }

    #[test]
    fn only_valid_tokens_sign() {
        let is_valid = secret("abcdef", &[]);
        let token = for_signing(&is_valid, at(0)).unwrap();
        assert_eq!((token.id, token.secret), ("abcdef", "0123456789abcdef"));
        assert!(!format!("{token:?}").contains(token.secret));
        let bad: [(&str, &[(&str, &str)]); 7] = [
            ("abcdef", &[("token-id", "other1")]),
            ("abcdef", &[("token-secret", "")]),
            ("abcdef", &[("usage-bootstrap-signing", "yes")]),
            ("abcdef", &[("usage-bootstrap-signing", "")]),
            ("abcdef", &[("expiration", "never")]),
            ("abcdefg", &[]),
            ("ABCDEF", &[]),
        ];
        for (id, data) in bad {
            assert_eq!(for_signing(&secret(id, data), at(0)), None, "{id} {data:?}");
        }
    }
}
