use serde_json::json;

use super::super::jose::{PublicKey, Signer};
use super::*;

/// Configuration of one issuer with two audiences, and of anonymous requests for one path.
const CONFIG: &str = r#"{
    "apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration",
    "jwt": [{"issuer": {"url": "https://issuer", "audiences": ["a", "b"], "audienceMatchPolicy": "MatchAny"},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}}}],
    "anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]}}"#;

#[tokio::test(start_paused = true)]
async fn a_token_needs_a_signature_an_audience_and_a_valid_time() {
    let configured = configure(CONFIG.as_bytes(), &[]).expect("valid");
    let anonymous = configured.anonymous.expect("configured").compile();
    assert!(anonymous.allows("/livez") && !anonymous.allows("/api"));
    let authenticator = &configured.jwt[0];
    let signer = Signer::from_pem(include_str!("../testdata/p256.pem")).expect("a key");
    let stranger = Signer::from_pem(include_str!("../testdata/rsa.pem")).expect("a key");
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let now_seconds = now.as_second();
    let (nbf, exp) = (now_seconds, now_seconds + 60);
    let base =
        || json!({"iss": "https://issuer", "sub": "ann", "aud": "a", "exp": exp, "nbf": nbf});
    let token = signer.sign(&base()).expect("signed");
    let none = authenticator.authenticate(&token, now).await;
    assert_eq!(none, Err("oidc: authenticator not initialized".to_owned()));
    authenticator.keys.publish(Some(vec![signer.public().clone()]));
    for (claim, value, expected) in [
        ("sub", json!("ann"), Ok(true)),
        ("iss", json!("https://other"), Ok(false)),
        ("aud", json!(["x", "b"]), Ok(true)),
        ("aud", json!(["x"]), Err("expected audience")),
        ("aud", json!(null), Err("expected audience")),
        ("exp", json!(now_seconds), Ok(true)),
        ("exp", json!(now_seconds - 1), Err("token is expired")),
        ("exp", json!(null), Err("token is expired")),
        ("nbf", json!(now_seconds + 60), Ok(true)),
        ("nbf", json!(now_seconds + 61), Err("before the nbf")),
        ("sub", json!(null), Ok(true)),
    ] {
        let mut claims = base();
        claims[claim] = value.clone();
        let token = signer.sign(&claims).expect("signed");
        let found = authenticator.authenticate(&token, now).await.map(|user| user.is_some());
        match (&found, expected) {
            (Ok(found), Ok(expected)) if *found == expected => {}
            (Err(error), Err(why)) if error.contains(why) => {}
            _ => panic!("{claim} {value}: {found:?}"),
        }
    }
    // No task fetches keys here, so the token with an unknown key waits until the timeout and is refused.
    let token = stranger.sign(&base()).expect("signed");
    let refused = authenticator.authenticate(&token, now).await;
    assert!(refused.is_err_and(|why| why.contains("failed to verify id token signature")));
}

#[tokio::test(start_paused = true)]
async fn a_token_with_a_new_key_waits_for_newer_keys() {
    let configured = configure(CONFIG.as_bytes(), &[]).expect("valid");
    let authenticator = &configured.jwt[0];
    let (old, new) = (include_str!("../testdata/p256.pem"), include_str!("../testdata/rsa.pem"));
    let key = |pem: &str| PublicKey::all_from_pem(pem.as_bytes()).expect("a key");
    authenticator.keys.publish(Some(key(old)));
    let now = Timestamp::UNIX_EPOCH;
    let claims = json!({"iss": "https://issuer", "sub": "ann", "aud": "a", "exp": 60});
    let token = Signer::from_pem(new).expect("a key").sign(&claims).expect("signed");
    let fetched = async {
        authenticator.keys.refresh_requested().await;
        authenticator.keys.publish(Some(key(new)));
    };
    let (user, ()) = tokio::join!(authenticator.authenticate(&token, now), fetched);
    assert_eq!(user.map(|user| user.map(|user| user.name)), Ok(Some("ann".into())));
    // The fetch withdrew the old key, which verifies no token any more. The next fetch fails.
    let token = Signer::from_pem(old).expect("a key").sign(&claims).expect("signed");
    let fails = async {
        authenticator.keys.refresh_requested().await;
        authenticator.keys.publish(None);
    };
    let (user, ()) = tokio::join!(authenticator.authenticate(&token, now), fails);
    assert!(user.is_err());
}
