//! Signatures of the ConfigMap, one for each valid token. Upstream: `signConfigMap`.

use crate::{
    bootstrap::token::{Lifetime, SigningToken, TokenSecret, remaining_lifetime, signing_token},
    wire,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{
    cache::Full,
    plan::{Plan, Update},
};
use k8s_openapi::api::core::v1::ConfigMap;
use ring::hmac::{HMAC_SHA256, Key, sign};
use std::{collections::BTreeMap, sync::Arc};

/// Key of the signed content.
const CONTENT_KEY: &str = "kubeconfig";
/// Prefix of the signatures' keys. The token id follows.
const SIGNATURE_KEY_PREFIX: &str = "jws-kubeconfig-";

/// The ConfigMap and the token Secrets.
pub(super) struct Observed {
    pub(super) cluster_info: Arc<Full<ConfigMap>>,
    pub(super) tokens: Vec<Arc<TokenSecret>>,
}

/// Updates the signatures, and requeues when the next token expires.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let cluster_info = &*observed.cluster_info;
    let Some(data) = &cluster_info.data else { return plan };
    let Some(content) = data.get(CONTENT_KEY) else { return plan };
    let mut signed_data = data.clone();
    signed_data.retain(|key, _| !key.starts_with(SIGNATURE_KEY_PREFIX));
    for token in signing_tokens(observed, now).values() {
        let key = format!("{SIGNATURE_KEY_PREFIX}{}", token.id);
        signed_data.insert(key, detached_signature(content, *token));
    }
    if signed_data != *data {
        let mut config_map = wire::copy_for_update(&**cluster_info);
        config_map.data = Some(signed_data);
        plan.push(Update::new(wire::target(cluster_info), wire::json(&config_map)));
    }
    for token in &observed.tokens {
        if let Lifetime::Remaining(remaining) = remaining_lifetime(token, now) {
            plan.requeue_after(remaining);
        }
    }
    plan
}

/// Returns the ids of the signing tokens.
pub(super) fn signing_ids(observed: &Observed, now: Timestamp) -> Vec<&str> {
    signing_tokens(observed, now).into_keys().collect()
}

/// Returns the signing tokens by id.
fn signing_tokens(observed: &Observed, now: Timestamp) -> BTreeMap<&str, SigningToken<'_>> {
    let tokens = observed.tokens.iter().filter_map(|secret| signing_token(secret, now));
    tokens.map(|token| (token.id, token)).collect()
}

/// Returns a detached JSON web signature of the content. Upstream: `ComputeDetachedSignature`.
fn detached_signature(content: &str, token: SigningToken<'_>) -> String {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let header = encode(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, token.id).as_bytes());
    let message = format!("{header}.{}", encode(content.as_bytes()));
    let key = Key::new(HMAC_SHA256, token.secret.as_bytes());
    let signature = sign(&key, message.as_bytes());
    // A detached signature lacks the content between the dots.
    format!("{header}..{}", encode(signature.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bootstrap::token::tests::secret,
        fixtures::{at, object},
    };
    use evenkeel_api::time::seconds;
    use evenkeel_runtime::plan::Action;
    use serde_json::{Value, json};

    fn observed(data: &Value, tokens: Vec<TokenSecret>) -> Observed {
        let cluster_info =
            json!({"metadata": {"name": "cluster-info", "namespace": "kube-public"}, "data": data});
        Observed {
            cluster_info: Arc::new(object(&cluster_info)),
            tokens: tokens.into_iter().map(Arc::new).collect(),
        }
    }

    /// Returns the written data; `None` if nothing changes.
    fn written_data(observed: &Observed) -> Option<Value> {
        let plan = plan(observed, at(0));
        match &*plan.actions {
            [] => None,
            [Action::Update(update)] => {
                Some(serde_json::from_slice::<Value>(&update.body).unwrap()["data"].clone())
            }
            _ => panic!("{plan:?}"),
        }
    }

    #[test]
    fn detached_signature_equals_upstreams() {
        // From upstream's tests.
        let token = SigningToken { id: "joshua", secret: "my voice is my passcode" };
        let expected =
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8";
        assert_eq!(
            detached_signature(
                "Hello from the other side. I must have called a thousand times.",
                token
            ),
            expected
        );
    }

    #[test]
    fn signatures_follow_tokens_and_content() {
        let first = written_data(&observed(
            &json!({"kubeconfig": "c", "more": "m"}),
            vec![secret("abcdef", &[])],
        ))
        .unwrap();
        assert_eq!((&first["kubeconfig"], &first["more"]), (&json!("c"), &json!("m")));
        assert!(first["jws-kubeconfig-abcdef"].as_str().unwrap().contains(".."));
        assert_eq!(written_data(&observed(&first, vec![secret("abcdef", &[])])), None);
        let unsigned = written_data(&observed(&first, Vec::new())).unwrap();
        assert_eq!(unsigned, json!({"kubeconfig": "c", "more": "m"}));
        // Other content or another secret gives another signature.
        let mut changed = first.clone();
        changed["kubeconfig"] = json!("d");
        let changed = written_data(&observed(&changed, vec![secret("abcdef", &[])])).unwrap();
        assert_ne!(changed["jws-kubeconfig-abcdef"], first["jws-kubeconfig-abcdef"]);
        assert!(
            written_data(&observed(&first, vec![secret("abcdef", &[("token-secret", "x")])]))
                .is_some()
        );
    }

    #[test]
    fn nothing_is_signed_without_kubeconfig_or_signing_token() {
        assert_eq!(
            written_data(&observed(
                &json!({"jws-kubeconfig-old": "x"}),
                vec![secret("abcdef", &[])]
            )),
            None
        );
        assert_eq!(
            written_data(&observed(
                &json!({"kubeconfig": "c"}),
                vec![secret("abcdef", &[("usage-bootstrap-signing", "no")])]
            )),
            None
        );
    }

    #[test]
    fn plan_requeues_at_the_token_expiration() {
        let expiration = seconds(at(60));
        let token = secret("abcdef", &[("expiration", &expiration)]);
        let observed = observed(&json!({"kubeconfig": "c"}), vec![token]);
        assert_eq!(plan(&observed, at(0)).requeue.map(|delay| delay.as_secs()), Some(60));
        assert_eq!(signing_ids(&observed, at(0)), ["abcdef"]);
        assert!(signing_ids(&observed, at(60)).is_empty());
    }
}
