//! Bootstrap tokens: Secrets in `kube-system` that authenticate machines when they join the cluster.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A token is `ID.SECRET`: six and sixteen lower-case letters or digits | `parse` |
//! | The Secret is `bootstrap-token-ID`, of type `bootstrap.kubernetes.io/token` | `key`, `validate` |
//! | `usage-bootstrap-authentication: "true"` allows authentication with the token | `validate` |
//! | The token is invalid after `expiration` (RFC 3339) | `has_expired` |
//! | `auth-extra-groups` adds groups that begin with `system:bootstrappers:` | `groups` |

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::text;
use jiff::Timestamp;
use serde_json::Value;

use super::constant_time::equal;

/// Group of every user that a bootstrap token authenticates, and prefix of the additional groups.
const GROUP: &str = "system:bootstrappers";

/// Splits a token into its ID and its secret. Returns `None` if it is not a bootstrap token.
///
/// Upstream: `ParseToken`.
pub(crate) fn parse(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let has_form = |text: &str, length: usize| {
        text.len() == length
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (has_form(id, 6) && has_form(secret, 16)).then_some((id, secret))
}

/// Returns the key of the token's Secret, as `NAMESPACE/NAME`.
pub(crate) fn key(id: &str) -> String {
    format!("kube-system/bootstrap-token-{id}")
}

/// Returns the user of the token with this ID and secret, or `None` if the token is invalid. `stored` is the token's
/// Secret.
///
/// Upstream: `TokenAuthenticator.AuthenticateToken`.
pub(crate) fn validate(id: &str, secret: &str, stored: &Value, now: Timestamp) -> Option<User> {
    if !text(stored, "metadata.deletionTimestamp").is_empty()
        || text(stored, "type") != "bootstrap.kubernetes.io/token"
        || !equal(data(stored, "token-secret").as_bytes(), secret.as_bytes())
        || data(stored, "token-id") != id
        || has_expired(stored, now)
        || data(stored, "usage-bootstrap-authentication") != "true"
    {
        return None;
    }
    let groups = groups(&data(stored, "auth-extra-groups"))?;
    let name = format!("system:bootstrap:{id}");
    Some(User::authenticated(&name, groups.iter().map(String::as_str)))
}

/// Returns a decoded value of a Secret's `data`; empty if it is absent or not UTF-8.
fn data(secret: &Value, key: &str) -> String {
    let value = secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let bytes = value.and_then(|value| BASE64_STANDARD.decode(value).ok()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Returns whether the token has expired. A token whose expiration is not a valid time counts as expired.
///
/// Upstream: `HasExpired`.
fn has_expired(secret: &Value, now: Timestamp) -> bool {
    let expiration = data(secret, "expiration");
    !expiration.is_empty() && expiration.parse::<Timestamp>().map_or(true, |until| until <= now)
}

/// Returns the token's groups, sorted. `extra` are the additional groups, separated by commas; returns `None` if one of
/// them is not a valid group of bootstrap tokens.
///
/// Upstream: `GetGroups`, `ValidateBootstrapGroupName`.
fn groups(extra: &str) -> Option<BTreeSet<String>> {
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        let suffix = group.strip_prefix(GROUP)?.strip_prefix(':')?;
        let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_allowed = |byte: u8| is_alphanumeric(byte) || matches!(byte, b':' | b'-');
        let has_valid_end = suffix.bytes().last().is_some_and(is_alphanumeric);
        if !has_valid_end || suffix.len() > 256 || !suffix.bytes().all(is_allowed) {
            return None;
        }
        groups.insert(group.to_owned());
    }
    Some(groups)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    /// Returns the Secret of a valid token with changed data, type or `deletionTimestamp`.
    fn secret(change: &[(&str, &str)]) -> Value {
        let mut secret =
            json!({"metadata": {}, "type": "bootstrap.kubernetes.io/token", "data": {}});
        let base = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in base.iter().chain(change) {
            match *key {
                "type" => secret["type"] = (*value).into(),
                "deletionTimestamp" => secret["metadata"]["deletionTimestamp"] = (*value).into(),
                key => secret["data"][key] = BASE64_STANDARD.encode(value).into(),
            }
        }
        secret
    }

    #[test]
    fn a_token_has_an_id_of_six_and_a_secret_of_sixteen_characters() {
        for (token, parsed) in [
            ("abcdef.0123456789abcdef", true),
            ("abcdef.0123456789abcde", false),
            ("abcde.0123456789abcdef", false),
            ("ABCDEF.0123456789abcdef", false),
            ("abcdef.0123456789abcdef.", false),
            ("abcdef.0123456789abcde\n", false),
            ("abcdef", false),
            ("", false),
        ] {
            assert_eq!(parse(token).is_some(), parsed, "{token:?}");
        }
    }

    #[test]
    fn a_secret_authenticates_its_token_with_its_groups() {
        let now = NOW.parse().expect("a time");
        type Changes<'a> = &'a [(&'a str, &'a str)];
        let table: [(Changes<'_>, Option<&[&str]>); 16] = [
            (&[], Some(&["system:bootstrappers", "system:authenticated"])),
            (
                &[("expiration", "2026-01-01T00:00:01Z")],
                Some(&["system:bootstrappers", "system:authenticated"]),
            ),
            (
                &[("expiration", "2026-01-01T02:00:01+02:00")],
                Some(&["system:bootstrappers", "system:authenticated"]),
            ),
            (&[("expiration", NOW)], None),
            (&[("expiration", "tomorrow")], None),
            (&[("type", "Opaque")], None),
            (&[("deletionTimestamp", NOW)], None),
            (&[("token-id", "abcdeg")], None),
            (&[("token-secret", "0123456789abcdeg")], None),
            (&[("token-secret", "")], None),
            (&[("usage-bootstrap-authentication", "True")], None),
            (&[("usage-bootstrap-authentication", "")], None),
            (
                &[("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a:c-d")],
                Some(&[
                    "system:bootstrappers",
                    "system:bootstrappers:a:c-d",
                    "system:bootstrappers:b",
                    "system:authenticated",
                ]),
            ),
            (&[("auth-extra-groups", "system:masters")], None),
            (&[("auth-extra-groups", "system:bootstrappers:a,")], None),
            (&[("auth-extra-groups", "system:bootstrappers:a-")], None),
        ];
        for (change, groups) in table {
            let user = validate("abcdef", "0123456789abcdef", &secret(change), now);
            let found = user.as_ref().map(|user| user.groups.iter().map(|g| &**g).collect());
            assert_eq!(found, groups.map(<[_]>::to_vec), "{change:?}");
            if let Some(user) = &user {
                assert_eq!(&*user.name, "system:bootstrap:abcdef");
            }
        }
    }
}
