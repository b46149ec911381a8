//! Tokens and certificates that are forged, stolen or expired.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use rcgen::{DnType, ExtendedKeyUsagePurpose, IsCa, date_time_ymd};
use ring::hmac;
use serde_json::{Value, json};

use crate::target::{Target, other_authority, signed};

const NAMESPACES: &str = "/api/v1/namespaces";

/// Creates a service account in a new namespace, and a token for it.
async fn token(target: &Target, spec: Value) -> (String, String) {
    let namespace = target.namespace("tokens").await;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
    let made = target.admin().make(&path, json!({"spec": spec})).await;
    (namespace, made["status"]["token"].as_str().expect("a token").to_owned())
}

/// Returns the code of a request with this token: 403 if the token is valid.
async fn code(target: &Target, token: &str) -> u16 {
    target.user(token).get(NAMESPACES).await.code
}

fn parts(token: &str) -> [String; 3] {
    let parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts.try_into().expect("three parts")
}

fn read(part: &str) -> Value {
    serde_json::from_slice(&BASE64.decode(part).expect("base64")).expect("JSON")
}

fn part(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

pub(crate) async fn algorithms_that_are_none(target: &Target) {
    let (_, token) = token(target, json!({})).await;
    assert_eq!(code(target, &token).await, 403);
    let [header, claims, signature] = parts(&token);
    for algorithm in ["none", "None", "NONE", "nOnE", "", "ES384", "RS256", "HS256"] {
        let header = part(&json!({"alg": algorithm, "typ": "JWT"}));
        for signature in ["", &signature] {
            assert_eq!(code(target, &format!("{header}.{claims}.{signature}")).await, 401, "{algorithm}");
        }
    }
    assert_eq!(code(target, &format!("{header}.{claims}.")).await, 401);
    assert_eq!(code(target, &format!("{header}.{claims}")).await, 401);
}

/// A signature that uses the public key as a shared secret.
pub(crate) async fn public_keys_as_secrets(target: &Target) {
    let (_, token) = token(target, json!({})).await;
    let [header, claims, _] = parts(&token);
    let keys = target.admin().get("/openid/v1/jwks").await;
    let mut secrets = vec![Vec::new(), b"secret".to_vec(), keys.text().into_bytes()];
    for key in keys.json()["keys"].as_array().into_iter().flatten() {
        secrets.extend(["x", "y", "n"].iter().filter_map(|n| BASE64.decode(key[*n].as_str()?).ok()));
    }
    let kid = read(&header)["kid"].clone();
    for secret in secrets {
        let header = part(&json!({"alg": "HS256", "typ": "JWT", "kid": kid}));
        let message = format!("{header}.{claims}");
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let signature = BASE64.encode(hmac::sign(&key, message.as_bytes()));
        assert_eq!(code(target, &format!("{message}.{signature}")).await, 401);
    }
}

/// Keys that the token itself names.
pub(crate) async fn keys_of_ones_own(target: &Target) {
    let (_, token) = token(target, json!({})).await;
    let [_, claims, _] = parts(&token);
    let own = rcgen::KeyPair::generate().expect("a key");
    let random = ring::rand::SystemRandom::new();
    let signer = ring::signature::EcdsaKeyPair::from_pkcs8(
        &ring::signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        own.serialized_der(),
        &random,
    )
    .expect("a key");
    let raw = own.public_key_raw();
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": BASE64.encode(&raw[1..33]), "y": BASE64.encode(&raw[33..])});
    for header in [
        json!({"alg": "ES256", "jwk": jwk}),
        json!({"alg": "ES256", "kid": "../../../../dev/null"}),
        json!({"alg": "ES256", "kid": "' OR 1=1 --"}),
        json!({"alg": "ES256", "jku": "https://127.0.0.1:1/jwks", "kid": "x"}),
        json!({"alg": "ES256", "x5u": "https://127.0.0.1:1/x", "x5c": [BASE64.encode(raw)]}),
        json!({"alg": "ES256", "crit": ["b64"], "b64": false}),
        json!({"alg": "ES256"}),
    ] {
        let message = format!("{}.{claims}", part(&header));
        let signature = signer.sign(&random, message.as_bytes()).expect("a signature");
        let token = format!("{message}.{}", BASE64.encode(signature));
        assert_eq!(code(target, &token).await, 401, "{header}");
    }
}

/// No part of a signed token can be changed, in any encoding.
pub(crate) async fn changed_claims(target: &Target) {
    let (_, token) = token(target, json!({})).await;
    let [header, claims, signature] = parts(&token);
    for (name, value) in [
        ("sub", json!("system:serviceaccount:kube-system:clusterrole-aggregation-controller")),
        ("exp", json!(9_999_999_999_i64)),
        ("aud", json!(["https://kubernetes.default.svc", "x"])),
        ("kubernetes.io", json!({"namespace": "kube-system", "serviceaccount": {"name": "default", "uid": "x"}})),
    ] {
        let mut changed = read(&claims);
        changed[name] = value;
        assert_eq!(code(target, &format!("{header}.{}.{signature}", part(&changed))).await, 401, "{name}");
    }
    for token in [
        format!("{token}A"),
        format!("{token}."),
        format!("{token}.{claims}"),
        format!("{token}="),
        format!(".{token}"),
        token[1..].to_owned(),
        "..".to_owned(),
        ".".repeat(10_000),
        format!("{header}.{claims}.{}", BASE64.encode([0; 64])),
        format!("{header}.{claims}.{}", BASE64.encode([0xff; 64])),
        "a".repeat(60_000),
    ] {
        let shown: String = token.chars().take(40).collect();
        assert_eq!(code(target, &token).await, 401, "{shown}");
    }
}

pub(crate) async fn tokens_for_others(target: &Target) {
    let (namespace, token) = token(target, json!({"audiences": ["vault"]})).await;
    assert_eq!(code(target, &token).await, 401, "it is for somebody else");
    let review = |audiences: Value| json!({"spec": {"token": token, "audiences": audiences}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let admin = target.admin();
    let of = async |audiences: Value| admin.post(reviews, &review(audiences)).await.json()["status"].clone();
    let status = of(json!(["vault", "x"])).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["vault"])), "{status}");
    assert_ne!(of(json!(["x"])).await["authenticated"], json!(true));
    assert_ne!(of(json!([])).await["authenticated"], json!(true));
    // The server refuses a token with a lifetime below ten minutes, or one that is bound to an object that does not
    // exist.
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
    for spec in [
        json!({"expirationSeconds": 1}),
        json!({"expirationSeconds": -600}),
        json!({"expirationSeconds": 9_223_372_036_854_775_807_i64}),
        json!({"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}}),
        json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}),
    ] {
        let answer = admin.post(&path, &json!({"spec": spec})).await;
        assert!((400..500).contains(&answer.code), "{spec}: {}", answer.text());
    }
    target.user("bob").post(&path, &json!({"spec": {}})).await.is(403, "");
}

/// A token becomes invalid with its service account, even if another account of the same name is created.
pub(crate) async fn tokens_of_accounts_that_are_gone(target: &Target) {
    let (namespace, token) = token(target, json!({})).await;
    assert_eq!(code(target, &token).await, 403);
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let admin = target.admin();
    admin.send("DELETE", &format!("{accounts}/default"), &[], b"").await.is(200, "");
    until(target, &token, 401).await;
    admin.make(&accounts, json!({"metadata": {"name": "default"}})).await;
    assert_eq!(code(target, &token).await, 401);
}

/// Upstream reads accounts and pods from a cache, and keeps the results for some seconds.
async fn until(target: &Target, token: &str, wanted: u16) {
    for _ in 0..100 {
        if code(target, token).await == wanted {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
    panic!("the token is still taken");
}

pub(crate) async fn tokens_of_pods_that_are_gone(target: &Target) {
    let namespace = target.namespace("bound").await;
    let admin = target.admin();
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    admin.make(&pods, pod).await;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
    let bound = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}});
    let made = admin.make(&path, bound).await;
    let token = made["status"]["token"].as_str().expect("a token");
    assert_eq!(code(target, token).await, 403);
    let now = json!({"gracePeriodSeconds": 0});
    admin.give("DELETE", &format!("{pods}/p"), crate::target::JSON, now.to_string()).await.is(200, "");
    until(target, token, 401).await;
}

/// A wrong token is refused, whatever other credentials the request has.
pub(crate) async fn tokens_beside_each_other(target: &Target) {
    let wrong = target.user("wrong");
    wrong.get("/version").await.is(401, "");
    let twice = target.user("wrong").header("Authorization", "Bearer admin");
    twice.get(NAMESPACES).await.is(401, "");
    let twice = target.user("ann").header("Authorization", "Bearer admin");
    twice.get(NAMESPACES).await.is(403, "");
    let with = target.certificate(|params| params.distinguished_name.push(DnType::CommonName, "root"));
    // Upstream checks the certificate first, and then ignores other credentials.
    let answer = target.with_certificate(with).header("Authorization", "Bearer wrong").get(NAMESPACES).await;
    assert!(matches!(answer.code, 401 | 403), "{}", answer.text());
    for value in ["Bearer", "Bearer ", "admin", "Token admin", "Bearer,admin", "Bearer=admin"] {
        let answer = target.anonymous().header("Authorization", value).get(NAMESPACES).await;
        assert!(matches!(answer.code, 401 | 403), "{value}: {}", answer.text());
    }
    target.anonymous().get("/api/v1/namespaces?access_token=admin&token=admin").await.is(403, "");
}

fn root(params: &mut rcgen::CertificateParams) {
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.distinguished_name.push(DnType::CommonName, "root");
}

/// Asserts that an untrusted certificate is refused: with 401, or in the handshake.
async fn is_nobodys(target: &Target, identity: crate::target::Identity) {
    let answer = target.with_certificate(identity).get(NAMESPACES).await;
    assert!(matches!(answer.code, 0 | 401), "{} {}", answer.code, answer.text());
}

pub(crate) async fn certificates_of_other_authorities(target: &Target) {
    target.with_certificate(target.certificate(root)).get(NAMESPACES).await.is(200, "");
    is_nobodys(target, signed(&other_authority("other"), root)).await;
    // An authority with the same name as the embedded server's.
    is_nobodys(target, signed(&other_authority("evenkeel-ca"), root)).await;
    is_nobodys(target, signed(&other_authority("attacked"), root)).await;
}

pub(crate) async fn certificates_that_are_not_for_clients(target: &Target) {
    let server = target.certificate(|params| {
        root(params);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    is_nobodys(target, server).await;
    let signing = target.certificate(|params| {
        root(params);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    });
    is_nobodys(target, signing).await;
}

pub(crate) async fn certificates_of_another_time(target: &Target) {
    is_nobodys(target, target.certificate(|params| {
        root(params);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    })).await;
    is_nobodys(target, target.certificate(|params| {
        root(params);
        params.not_before = date_time_ymd(2400, 1, 1);
        params.not_after = date_time_ymd(2401, 1, 1);
    })).await;
}

/// A client certificate of the authority cannot sign other certificates.
pub(crate) async fn certificates_by_who_is_no_authority(target: &Target) {
    let leaf = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "ann");
    params.is_ca = IsCa::ExplicitNoCa;
    let issuer = rcgen::Issuer::new(params, leaf);
    is_nobodys(target, signed(&issuer, root)).await;
    // The authority's own certificate identifies no user.
    let answer = target.with_certificate(target.authority()).get(NAMESPACES).await;
    assert!(matches!(answer.code, 0 | 401 | 403), "{}", answer.text());
}

pub(crate) async fn names_in_certificates(target: &Target) {
    // Only organizations are groups, and a user needs a name.
    for change in [
        (|params: &mut rcgen::CertificateParams| {
            params.distinguished_name.push(DnType::CommonName, "ann");
            params.distinguished_name.push(DnType::OrganizationalUnitName, "system:masters");
        }) as fn(&mut rcgen::CertificateParams),
        |params| params.distinguished_name.push(DnType::CommonName, "ann,O=system:masters"),
        |params| params.distinguished_name.push(DnType::CommonName, "ann/O=system:masters"),
        |params| params.distinguished_name.push(DnType::OrganizationName, "system:masters\0x"),
        |params| params.distinguished_name.push(DnType::OrganizationName, "System:Masters"),
        |params| {
            params.distinguished_name.push(DnType::CommonName, "admin");
            params.subject_alt_names = vec![rcgen::SanType::DnsName("system-masters".try_into().expect("a name"))];
        },
    ] {
        let answer = target.with_certificate(target.certificate(change)).get(NAMESPACES).await;
        assert!(matches!(answer.code, 401 | 403), "{}", answer.text());
    }
}
