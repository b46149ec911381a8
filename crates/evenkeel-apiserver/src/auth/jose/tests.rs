use super::*;

/// Algorithms with their private keys in PEM and key IDs, which `openssl` computed.
const KEYS: [(&str, &str, &str); 3] = [
    ("RS256", include_str!("../testdata/rsa.pem"), "z2yuo7IVIqcivrAZk7Kb6g_n7dVM_OmBI1ob6XFUDCM"),
    ("ES256", include_str!("../testdata/p256.pem"), "TvLGu71-PcIS9NpBWWlYXD37TY--hL9A5dE_fn709_w"),
    ("ES384", include_str!("../testdata/p384.pem"), "5yMnO2bwhr58tV6AIpW82VRchF0LRgAA4eEjFEIm-p8"),
];

/// Returns the signer with the key at this index of [`KEYS`].
fn signer(index: usize) -> Signer {
    Signer::from_pem(KEYS[index].1).expect("a key")
}

#[test]
fn a_key_verifies_what_it_signed_and_nothing_else() {
    for (index, (algorithm, _, id)) in KEYS.into_iter().enumerate() {
        let token = signer(index).sign(&json!({"sub": "me"})).expect("signed");
        let jws = Jws::parse(&token).expect("a token");
        assert_eq!((jws.key_id(), jws.claims()), (id, Some(json!({"sub": "me"}))));
        assert_eq!(signer(index).public().algorithm(), algorithm);
        for other in 0..KEYS.len() {
            assert_eq!(
                signer(other).public().verifies(&jws),
                other == index,
                "{algorithm} {other}"
            );
        }
        // The signature does not verify changed claims, another algorithm or another signature.
        let parts: Vec<&str> = token.split('.').collect();
        let other_claims = BASE64.encode(json!({"sub": "admin"}).to_string());
        let alg_none = BASE64.encode(json!({"alg": "none", "kid": id}).to_string());
        let alg_hs256 = BASE64.encode(json!({"alg": "HS256", "kid": id}).to_string());
        for forged in [
            format!("{}.{other_claims}.{}", parts[0], parts[2]),
            format!("{alg_none}.{}.", parts[1]),
            format!("{alg_none}.{}.{}", parts[1], parts[2]),
            format!("{alg_hs256}.{}.{}", parts[1], parts[2]),
            format!("{}.{}.{}", parts[0], parts[1], BASE64.encode([0; 64])),
            format!("{}.{}.", parts[0], parts[1]),
        ] {
            let jws = Jws::parse(&forged).expect("a token");
            assert!(!signer(index).public().verifies(&jws), "{forged}");
        }
    }
}

#[test]
fn only_compact_serialization_is_parsed() {
    let part = |value: Value| BASE64.encode(value.to_string());
    let (header, claims) = (part(json!({"alg": "ES256"})), part(json!({"a": 1})));
    // The claims `AA` are not JSON.
    for (token, is_token, has_claims) in [
        (format!("{header}.{claims}.AA"), true, true),
        (format!("{header}.{}.AA", part(json!([1]))), true, false),
        (format!("{header}.AA.AA"), true, false),
        (format!("{header}.{claims}"), false, false),
        (format!("{header}.{claims}.AA.AA"), false, false),
        (format!("{header}.{claims}.A"), false, false),
        (format!("{header}.{claims}=.AA"), false, false),
        (format!("{claims}.{claims}.AA"), false, false),
        (format!("{}.{claims}.AA", part(json!({"alg": "ES256", "crit": ["b64"]}))), false, false),
        ("{\"payload\": \"a\"}".to_owned(), false, false),
        (String::new(), false, false),
        ("..".to_owned(), false, false),
    ] {
        let jws = Jws::parse(&token);
        assert_eq!(jws.is_some(), is_token, "{token}");
        assert_eq!(jws.and_then(|jws| jws.claims()).is_some(), has_claims, "{token}");
    }
}

#[test]
fn json_web_keys_are_encoded_and_decoded() {
    for (index, (algorithm, _, id)) in KEYS.into_iter().enumerate() {
        let key = signer(index).public().clone();
        let jwk = key.to_jwk();
        assert_eq!(
            (&jwk["kid"], &jwk["alg"], &jwk["use"]),
            (&id.into(), &algorithm.into(), &"sig".into())
        );
        assert_eq!(PublicKey::from_jwk(&jwk), Some(key));
        for field in ["kty", "n", "e", "x", "y", "crv"] {
            let mut broken = jwk.clone();
            if let Some(value) = broken.get_mut(field) {
                *value = "%".into();
                assert_eq!(PublicKey::from_jwk(&broken), None, "{algorithm} {field}");
            }
        }
    }
    assert_eq!(PublicKey::from_jwk(&json!({"kty": "oct", "k": "AAAA"})), None);
}

#[test]
fn public_keys_are_read_from_keys_and_certificates() {
    let all: String = KEYS.iter().map(|(_, pem, _)| *pem).collect();
    let keys = PublicKey::all_from_pem(all.as_bytes()).expect("three keys");
    let ids: Vec<&str> = keys.iter().map(PublicKey::id).collect();
    assert_eq!(ids, KEYS.map(|(_, _, id)| id));
    let key = rcgen::KeyPair::generate().expect("a key");
    let from = |pem: &str| PublicKey::all_from_pem(pem.as_bytes()).expect("a key");
    let params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    assert_eq!(from(&key.public_key_pem()), from(&certificate));
    assert_eq!(from(&key.public_key_pem()), from(&key.serialize_pem()));
    for unusable in ["", "nothing", include_str!("../testdata/p521.pem")] {
        assert!(PublicKey::all_from_pem(unusable.as_bytes()).is_err(), "{unusable}");
    }
    assert!(Signer::from_pem(include_str!("../testdata/p521.pem")).is_err());
}
