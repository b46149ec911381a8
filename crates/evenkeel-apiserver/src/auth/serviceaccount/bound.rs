//! Tokens of the TokenRequest API: their claims and their validity.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A token is valid from `nbf` to `exp`, with a tolerance of a minute | `check_times` |
//! | A token is valid while its service account exists, and the pod, Secret or node that it is bound to | `validate` |
//! | An object of the same name with another UID does not make the token valid again | `validate` |
//! | An object that is being deleted makes the token invalid a minute after its deletion timestamp | `is_live` |

use evenkeel_apimachinery::value::text;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::info::{Reference, ServiceAccountInfo, username};

/// Tolerance for clock skew.
///
/// Upstream: `jwt.DefaultLeeway`.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);

/// Function that returns a stored object by resource prefix and key.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str, &str) -> Option<Value>;

/// Values of the claims of a token to sign.
pub(crate) struct Claims<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    /// Objects that the token is bound to: the claim, such as `pod`, and the object's name and UID.
    pub(crate) bound: &'a [(&'static str, String, String)],
    pub(crate) audiences: &'a [String],
    /// ID of the token.
    pub(crate) id: &'a str,
    pub(crate) issued: Timestamp,
    /// Seconds until the token expires.
    pub(crate) seconds: i64,
    /// Seconds after which clients should use a renewed token; `None` if they may use this one until it expires.
    pub(crate) warn_after: Option<i64>,
}

impl Claims<'_> {
    /// Returns the claims in JSON.
    ///
    /// Upstream: `Claims`.
    pub(crate) fn to_json(&self, issuer: &str) -> Value {
        let issued = self.issued.as_second();
        let mut private = json!({
            "namespace": self.namespace,
            "serviceaccount": {"name": self.name, "uid": self.uid},
        });
        for (claim, name, uid) in self.bound {
            private[claim] = match uid.is_empty() {
                true => json!({"name": name}),
                false => json!({"name": name, "uid": uid}),
            };
        }
        if let Some(seconds) = self.warn_after {
            private["warnafter"] = (issued + seconds).into();
        }
        json!({
            "aud": self.audiences,
            "exp": issued + self.seconds,
            "iat": issued,
            "iss": issuer,
            "jti": self.id,
            "kubernetes.io": private,
            "nbf": issued,
            "sub": username(self.namespace, self.name),
        })
    }
}

/// Claim `kubernetes.io` of a token.
#[derive(Deserialize)]
struct Private {
    #[serde(default)]
    namespace: String,
    serviceaccount: Reference,
    pod: Option<Reference>,
    secret: Option<Reference>,
    node: Option<Reference>,
}

/// Returns the service account of a verified token, or the reason why the token is invalid.
///
/// Upstream: `validator.Validate`.
pub(crate) fn validate(
    claims: &Value,
    now: Timestamp,
    lookup: Lookup<'_>,
) -> Result<ServiceAccountInfo, String> {
    check_times(claims, now)?;
    let private = claims.get("kubernetes.io").cloned().unwrap_or_default();
    let private: Private = serde_json::from_value(private)
        .map_err(|_| "service account token claims could not be validated".to_owned())?;
    let Private { namespace, serviceaccount: account, pod, secret, node } = private;
    let namespaced_key = |name: &str| format!("{namespace}/{name}");
    let Some(stored) = lookup("/serviceaccounts", &namespaced_key(&account.name)) else {
        return Err(format!("serviceaccounts \"{}\" not found", account.name));
    };
    let uid = text(&stored, "metadata.uid");
    if uid != account.uid {
        return Err(format!("service account UID ({uid}) does not match claim ({})", account.uid));
    }
    if !is_live(&stored, now) {
        return Err(format!("service account {namespace}/{} has been deleted", account.name));
    }
    let check_bound = |kind: &str, resource_prefix: &str, key: &str, reference: &Reference| {
        let invalidated = || "service account token has been invalidated".to_owned();
        let stored = lookup(resource_prefix, key).ok_or_else(invalidated)?;
        let uid = text(&stored, "metadata.uid");
        if uid != reference.uid {
            let claim = kind.to_lowercase();
            let claimed_uid = &reference.uid;
            return Err(format!(
                "{kind} UID ({uid}) does not match service account {claim} ref claim ({claimed_uid})"
            ));
        }
        if is_live(&stored, now) { Ok(()) } else { Err(invalidated()) }
    };
    if let Some(secret) = &secret {
        check_bound("secret", "/secrets", &namespaced_key(&secret.name), secret)?;
    }
    if let Some(pod) = &pod {
        check_bound("pod", "/pods", &namespaced_key(&pod.name), pod)?;
    }
    // A token that is bound to a pod names the pod's node but is not bound to the node.
    if let (Some(node), None) = (&node, &pod) {
        check_bound("node", "/nodes", &node.name, node)?;
    }
    let id = text(claims, "jti");
    Ok(ServiceAccountInfo {
        namespace,
        name: account.name,
        uid: account.uid,
        pod,
        node,
        credential_id: if id.is_empty() { String::new() } else { format!("JTI={id}") },
    })
}

/// Refuses a token that is not valid yet or has expired.
///
/// Like go-jose's `Claims.ValidateWithLeeway`.
fn check_times(claims: &Value, now: Timestamp) -> Result<(), &'static str> {
    let time = |claim: &str| claims.get(claim).and_then(Value::as_f64);
    let (now, leeway) = (now.as_second() as f64, LEEWAY.as_secs_f64());
    if time("nbf").is_some_and(|not_before| now + leeway < not_before) {
        return Err("service account token is not valid yet");
    }
    if time("exp").is_some_and(|expiry| now - leeway > expiry) {
        return Err("service account token has expired");
    }
    if time("iat").is_some_and(|issued| now + leeway < issued) {
        return Err("service account token is issued in the future");
    }
    Ok(())
}

/// Returns whether an object has no deletion timestamp, or a timestamp that is at most [`LEEWAY`] old.
fn is_live(object: &Value, now: Timestamp) -> bool {
    let deleted = text(object, "metadata.deletionTimestamp");
    deleted.is_empty() || deleted.parse::<Timestamp>().is_ok_and(|deleted| deleted >= now - LEEWAY)
}

#[cfg(test)]
mod tests;
