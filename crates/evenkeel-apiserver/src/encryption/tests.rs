use serde_json::{Value, json};

use super::*;

/// Returns `n` bytes, each of them `digit`, in base64.
fn secret(digit: u8, n: usize) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(vec![digit; n])
}

/// Returns a configuration file with these rules.
fn config(resources: &Value) -> String {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": resources})
        .to_string()
}

fn encryption(resources: &Value) -> Encryption {
    Encryption::from_config(&config(resources), &Clock::system())
        .unwrap_or_else(|why| panic!("{why}"))
}

/// Returns a provider with keys, each given by name, byte and length.
fn provider(name: &str, keys: &[(&str, u8, usize)]) -> Value {
    let keys: Vec<Value> = keys
        .iter()
        .map(|(name, digit, n)| json!({"name": name, "secret": secret(*digit, *n)}))
        .collect();
    json!({name: {"keys": keys}})
}

const SECRET: DataContext<'_> = DataContext { resource_prefix: "/secrets", key: "ns/x" };

fn stored(encryption: &Encryption, context: DataContext<'_>, value: &[u8]) -> Vec<u8> {
    encryption.transform_to_storage(context, value.into()).expect("encrypted").into_owned()
}

#[test]
fn every_provider_decrypts_what_it_encrypted() {
    for (name, size) in [
        ("aescbc", 16),
        ("aescbc", 24),
        ("aescbc", 32),
        ("aesgcm", 16),
        ("aesgcm", 24),
        ("aesgcm", 32),
        ("secretbox", 32),
    ] {
        let rule =
            json!([{"resources": ["secrets"], "providers": [provider(name, &[("k", 1, size)])]}]);
        let encryption = encryption(&rule);
        for value in [&b""[..], b"a", &[7; 16], &[9; 10_000]] {
            let bytes = stored(&encryption, SECRET, value);
            let prefix = format!("k8s:enc:{name}:v1:k:");
            assert!(bytes.starts_with(prefix.as_bytes()), "{name}");
            assert!(value.len() < 16 || !bytes.windows(value.len()).any(|part| part == value));
            assert_ne!(bytes, stored(&encryption, SECRET, value), "each nonce is new");
            let back = encryption.transform_from_storage(SECRET, &bytes);
            assert_eq!(back, Ok((value.into(), false)), "{name} {size}");
            // A truncated value is refused. Without authentication, it may decrypt to another value. It never panics.
            for end in 0..bytes.len().min(80) {
                assert_ne!(
                    encryption.transform_from_storage(SECRET, &bytes[..end]).ok(),
                    back.clone().ok()
                );
            }
        }
        // Only AES-GCM binds a value to its object's key.
        let bytes = stored(&encryption, SECRET, b"value");
        let elsewhere = DataContext { key: "ns/y", ..SECRET };
        assert_eq!(encryption.transform_from_storage(elsewhere, &bytes).is_err(), name == "aesgcm");
    }
}

/// Values that upstream's libraries encrypted: Go's `crypto/cipher` and `nacl/secretbox` of `golang.org/x/crypto`.
#[test]
fn values_that_upstream_encrypted_are_decrypted() {
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|index| u8::from_str_radix(&text[index..index + 2], 16).expect("hex"))
            .collect()
    };
    let vectors: Vec<Value> = serde_json::from_str(VECTORS).expect("json");
    assert_eq!(vectors.len(), 3);
    for vector in &vectors {
        let text = |field: &str| vector[field].as_str().expect("text");
        let key = hex(text("key"));
        let cipher = match text("provider") {
            "aescbc" => Cipher::aes_cbc(&key),
            "aesgcm" => Cipher::aes_gcm(&key),
            _ => Cipher::secretbox(&key),
        };
        let value = cipher.expect("a key").decrypt(&hex(text("stored")), text("data").as_bytes());
        assert_eq!(value.as_deref(), Ok(text("value").as_bytes()), "{}", text("provider"));
    }
}

const VECTORS: &str = include_str!("testdata/vectors.json");

#[test]
fn a_value_of_an_earlier_key_is_stale_until_the_next_write() {
    let old = ("old", 1, 32);
    let new = ("new", 2, 32);
    let rule = |providers: Vec<Value>| {
        encryption(&json!([{"resources": ["secrets"], "providers": providers}]))
    };
    let before = stored(&rule(vec![provider("secretbox", &[old])]), SECRET, b"v");
    let both = rule(vec![provider("secretbox", &[new, old]), json!({"identity": {}})]);
    assert_eq!(both.transform_from_storage(SECRET, &before), Ok((b"v".into(), true)), "stale");
    assert_eq!(both.transform_from_storage(SECRET, b"v"), Ok((b"v".into(), true)), "not encrypted");
    let after = stored(&both, SECRET, b"v");
    assert_eq!(both.transform_from_storage(SECRET, &after), Ok((b"v".into(), false)));
    let only_new = rule(vec![provider("secretbox", &[new])]);
    let why = only_new.transform_from_storage(SECRET, &before);
    assert_eq!(
        why,
        Err(Untransformable("there is no provider with the key \"secretbox:v1:old\"".to_owned()))
    );
    let wrong = rule(vec![provider("secretbox", &[("old", 3, 32)])]);
    let why = wrong.transform_from_storage(SECRET, &before);
    assert_eq!(
        why,
        Err(Untransformable(
            "the stored value cannot be decrypted with the key \"secretbox:v1:old\"".to_owned()
        ))
    );
}

#[test]
fn the_first_rule_for_a_resource_applies() {
    let by = |name: &str| vec![provider("aesgcm", &[(name, 1, 32)])];
    let encryption = encryption(&json!([
        {"resources": ["configmaps"], "providers": [{"identity": {}}]},
        {"resources": ["secrets"], "providers": by("a")},
        {"resources": ["*.", "deployments.apps"], "providers": by("b")},
        {"resources": ["pods"], "providers": by("masked")},
        {"resources": ["*.example.com"], "providers": by("c")},
        {"resources": ["*.*"], "providers": by("d")},
        {"resources": ["statefulsets.apps"], "providers": by("masked")},
    ]));
    for (prefix, key) in [
        ("/configmaps", None),
        ("/secrets", Some("a")),
        ("/pods", Some("b")),
        ("apps/deployments", Some("b")),
        ("apps/statefulsets", Some("d")),
        ("example.com/widgets", Some("c")),
        ("batch/jobs", Some("d")),
    ] {
        let context = DataContext { resource_prefix: prefix, key: "x" };
        let bytes = stored(&encryption, context, b"v");
        let key = key.map(|key| format!("k8s:enc:aesgcm:v1:{key}:"));
        assert_eq!(bytes.starts_with(b"k8s:enc:"), key.is_some(), "{prefix}");
        assert!(key.is_none_or(|key| bytes.starts_with(key.as_bytes())), "{prefix}");
    }
}

#[test]
fn errors_of_a_configuration_do_not_contain_its_secrets() {
    let one = |resources: Value, providers: Value| {
        config(&json!([{"resources": resources, "providers": providers}]))
    };
    let key = |name: &str, secret: &str| json!([{"aescbc": {"keys": [{"name": name, "secret": secret}]}}]);
    let good = provider("aescbc", &[("k", 1, 32)]);
    let short = secret(1, 5);
    for (text, why) in [
        (config(&json!([])), "resources: Required value"),
        (one(json!([]), json!([good])), "at least one resources[0].resources is required"),
        (one(json!(["secrets"]), json!([])), "at least one resources[0].providers is required"),
        (one(json!(["secrets"]), json!([{}])), "does not contain any of the expected providers"),
        (
            one(json!(["secrets"]), json!([{"identity": {}, "aescbc": {"keys": []}}])),
            "more than one provider",
        ),
        (
            one(json!(["secrets"]), json!([{"aescbc": {"keys": []}}])),
            "at least one keys is required",
        ),
        (one(json!(["secrets"]), json!([{"kms": {"name": "x"}}])), "KMSv1 is not in this server"),
        (
            one(json!(["secrets"]), json!([{"kms": {"apiVersion": "v2", "name": "x:y"}}])),
            "must not contain ':'",
        ),
        (
            one(
                json!(["secrets"]),
                json!([{"kms": {"apiVersion": "v2", "name": "x", "endpoint": "tcp://a"}}]),
            ),
            "unsupported scheme \"tcp\" for KMS provider, only unix is supported",
        ),
        (one(json!(["secrets"]), key("", "x")), "name is a mandatory field for a key"),
        (one(json!(["secrets"]), key("k", "")), "secret is a mandatory field for a key"),
        (one(json!(["secrets"]), key("k", "hush!")), "secrets must be base64 encoded"),
        (one(json!(["secrets"]), key("k", &short)), "got 5, expected one of [16 24 32]"),
        (one(json!(["Secrets"]), json!([good])), "should not contain capital letters"),
        (one(json!(["*"]), json!([good])), "use '*.' to encrypt"),
        (one(json!(["secrets", "secrets"]), json!([good])), "cannot be specified multiple times"),
        (one(json!(["secrets", "*."]), json!([good])), "overlapping resources"),
        (one(json!(["*.*", "jobs.batch"]), json!([good])), "overlapping resources"),
        (one(json!(["pods.*"]), json!([good])), "encrypting the same resource across groups"),
        (one(json!(["events.events.k8s.io"]), json!([good])), "Use 'events' instead"),
        ("kind: Pod".to_owned(), "must be an EncryptionConfiguration"),
        ("resources: [{resource: []}]".to_owned(), "unknown field"),
    ] {
        let refused = Encryption::from_config(&text, &Clock::system())
            .err()
            .unwrap_or_else(|| panic!("{text}"));
        assert!(refused.contains(why), "{refused}, not {why}");
        assert!(!refused.contains("hush!") && !refused.contains(&short), "{refused}");
    }
}
