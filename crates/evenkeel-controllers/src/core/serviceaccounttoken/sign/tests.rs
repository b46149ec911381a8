use super::*;
use ring::signature::KeyPair as _;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey, VerificationAlgorithm,
};

// The algorithm and the PEM of each private key, and the key id that `openssl` computes.
const KEYS: [(&str, &[u8], &str); 4] = [
    ("RS256", include_bytes!("../testdata/rsa.pem"), "z2yuo7IVIqcivrAZk7Kb6g_n7dVM_OmBI1ob6XFUDCM"),
    (
        "ES256",
        include_bytes!("../testdata/p256.pem"),
        "TvLGu71-PcIS9NpBWWlYXD37TY--hL9A5dE_fn709_w",
    ),
    (
        "ES256",
        include_bytes!("../testdata/p256.pk8.pem"),
        "TvLGu71-PcIS9NpBWWlYXD37TY--hL9A5dE_fn709_w",
    ),
    (
        "ES384",
        include_bytes!("../testdata/p384.pem"),
        "5yMnO2bwhr58tV6AIpW82VRchF0LRgAA4eEjFEIm-p8",
    ),
];

#[test]
fn token_has_key_id_and_valid_signature() {
    for (algorithm, pem, id) in KEYS {
        let signer = Signer::from_pem(pem).expect(algorithm);
        let token = signer.sign(&json!({"sub": "me"})).expect(algorithm);
        let (message, signature) = token.rsplit_once('.').expect("three parts");
        let (header, claims) = message.split_once('.').expect("three parts");
        let read = |part: &str| -> Value {
            let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).expect("base64");
            serde_json::from_slice(&bytes).expect("JSON")
        };
        assert_eq!(read(header), json!({"alg": algorithm, "kid": id}));
        assert_eq!(read(claims), json!({"sub": "me"}));
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).expect("base64");
        let (verification, public): (&dyn VerificationAlgorithm, &[u8]) = match &signer.key {
            PrivateKey::Rsa(pair) => (&RSA_PKCS1_2048_8192_SHA256, pair.public().as_ref()),
            PrivateKey::Curve(pair, _) if signer.algorithm == "ES256" => {
                (&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref())
            }
            PrivateKey::Curve(pair, _) => (&ECDSA_P384_SHA384_FIXED, pair.public_key().as_ref()),
            PrivateKey::Edwards(_) => panic!("no Ed25519 key in KEYS"),
        };
        let verified =
            UnparsedPublicKey::new(verification, public).verify(message.as_bytes(), &signature);
        assert!(verified.is_ok(), "{algorithm}");
    }
}

#[test]
fn invalid_and_unsupported_keys_are_rejected() {
    let text = |pem: &[u8]| Signer::from_pem(pem).err().map(|error| error.to_string());
    assert!(text(b"nothing").is_some_and(|text| text.contains("no private key in PEM")));
    let larger = include_bytes!("../testdata/p521.pem");
    assert!(text(larger).is_some_and(|text| text.contains("P-384")));
}
