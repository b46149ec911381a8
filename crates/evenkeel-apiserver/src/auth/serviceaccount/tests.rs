use serde_json::json;

use super::*;

const KEY: &str = include_str!("../testdata/p256.pem");
const OTHER_KEY: &str = include_str!("../testdata/rsa.pem");

/// Returns the service accounts of a server that signs with `key`, accepts `more` keys, and has these issuer URLs.
fn issuer(key: &str, more: &[&str], issuers: &[&str]) -> ServiceAccounts {
    let more = more.iter().flat_map(|pem| PublicKey::all_from_pem(pem.as_bytes()).expect("keys"));
    let issuers: Vec<String> = issuers.iter().map(|url| (*url).to_owned()).collect();
    ServiceAccounts::new(ServiceAccountOptions {
        signer: Signer::from_pem(key).expect("a key"),
        keys: more.collect(),
        audiences: issuers.clone(),
        issuers,
        jwks_uri: "https://a/openid/v1/jwks".to_owned(),
    })
}

/// Returns a signed token of the service account `web` for these audiences.
fn token(accounts: &ServiceAccounts, audiences: &[&str]) -> String {
    let audiences: Vec<String> = audiences.iter().map(|a| (*a).to_owned()).collect();
    let claims = Claims {
        namespace: "a",
        name: "web",
        uid: "1",
        bound: &[],
        audiences: &audiences,
        id: "t",
        issued: Timestamp::UNIX_EPOCH,
        seconds: 600,
        warn_after: None,
    };
    accounts.sign(&claims).expect("signed")
}

/// Returns the audiences for which a token is valid, or `None` for another issuer's token.
fn outcome(
    accounts: &ServiceAccounts,
    token: &str,
    wanted: &[&str],
) -> Result<Option<Vec<String>>, String> {
    let wanted: Vec<String> = wanted.iter().map(|a| (*a).to_owned()).collect();
    let lookup = |prefix: &str, key: &str| {
        ((prefix, key) == ("/serviceaccounts", "a/web")).then(|| json!({"metadata": {"uid": "1"}}))
    };
    let mut notes = Notes::default();
    let found =
        accounts.authenticate_with(&lookup, Timestamp::UNIX_EPOCH, token, &wanted, &mut notes)?;
    Ok(found.map(|response| response.audiences))
}

#[test]
fn a_token_is_valid_for_its_audiences() {
    let accounts = issuer(KEY, &[], &["https://a"]);
    let both = token(&accounts, &["https://a", "vault"]);
    for (token, wanted, audiences) in [
        (&both, &["https://a"][..], Some(&["https://a"][..])),
        (&both, &["vault", "https://a", "x"], Some(&["https://a", "vault"])),
        (&both, &["x"], None),
        (&token(&accounts, &["vault"]), &["https://a"], None),
        // A token without audiences is valid for the server.
        (&token(&accounts, &[]), &["https://a"], Some(&["https://a"])),
        (&token(&accounts, &[]), &["vault"], None),
    ] {
        let found = outcome(&accounts, token, wanted).ok().flatten();
        assert_eq!(
            found,
            audiences.map(|all| all.iter().map(|a| (*a).to_owned()).collect()),
            "{wanted:?}"
        );
    }
}

#[test]
fn tokens_of_earlier_keys_and_issuers_stay_valid_while_these_are_configured() {
    let before = issuer(OTHER_KEY, &[], &["https://old"]);
    let old = token(&before, &["https://old"]);
    let rotated = issuer(KEY, &[OTHER_KEY], &["https://new", "https://old"]);
    assert_eq!(outcome(&rotated, &old, &["https://old"]), Ok(Some(vec!["https://old".to_owned()])));
    let claims = Jws::parse(&token(&rotated, &[])).and_then(|jws| jws.claims()).expect("claims");
    assert_eq!(claims["iss"], "https://new");
    let without_key = issuer(KEY, &[], &["https://new", "https://old"]);
    let why = "invalid signature, no keys found".to_owned();
    assert_eq!(outcome(&without_key, &old, &["https://old"]), Err(why));
    let without_issuer = issuer(KEY, &[OTHER_KEY], &["https://new"]);
    assert_eq!(outcome(&without_issuer, &old, &["https://new"]), Ok(None));
}

#[test]
fn the_issuer_publishes_all_keys() {
    let accounts = issuer(KEY, &[OTHER_KEY, KEY], &["https://a"]);
    let ids: Vec<Value> = accounts.jwks()["keys"]
        .as_array()
        .expect("keys")
        .iter()
        .map(|key| key["kid"].clone())
        .collect();
    assert_eq!(
        ids,
        [
            "TvLGu71-PcIS9NpBWWlYXD37TY--hL9A5dE_fn709_w",
            "z2yuo7IVIqcivrAZk7Kb6g_n7dVM_OmBI1ob6XFUDCM"
        ]
    );
    assert_eq!(
        accounts.openid_configuration(),
        json!({
            "issuer": "https://a",
            "jwks_uri": "https://a/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256", "RS256"],
        })
    );
}
