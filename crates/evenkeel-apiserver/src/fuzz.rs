//! Entry points of the fuzz targets (`evenkeel-fuzz`) for private decoders. No program calls them.

use std::borrow::Cow;
use std::sync::LazyLock;

use evenkeel_api::json;
use evenkeel_cel::shard_selector;
use http::Method;
use serde_json::Value;

use crate::auth::{Jws, PublicKey, Signer, bootstrap_token, configure};
use crate::encryption::Encryption;
use crate::request::{LowerMethod, Query, RequestInfo, WriteOptions};
use crate::resource::{Table, parse_path};
use crate::selector::Selectors;
use crate::store::{self, DataContext, Transformer as _};
use crate::streaming;
use crate::verbs::delete_options::DeleteOptions;
use crate::verbs::list::Token;

/// Encryption configuration with a provider of each kind. Its keys exist only for fuzzing.
const ENCRYPTION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODw==}, {name: a, secret: EAECAwQFBgcICQoLDA0ODw==}]}
  - aescbc: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODw==}]}
  - secretbox: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODwABAgMEBQYHCAkKCwwNDg8=}]}
  - identity: {}
- resources: [configmaps]
  providers:
  - aescbc: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODw==}]}
  - secretbox: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODwABAgMEBQYHCAkKCwwNDg8=}]}
- resources: [events]
  providers:
  - secretbox: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODwABAgMEBQYHCAkKCwwNDg8=}]}
";

static TABLE: LazyLock<Table> = LazyLock::new(Table::builtin);

/// Decodes a continue token into the revision and the key at which the next page starts.
///
/// # Errors
/// Returns the reason why the token is invalid.
pub fn continue_token(text: &str) -> Result<(i64, String), String> {
    Token::read(text).map(|token| (token.revision(), token.start().to_owned()))
}

/// Encodes a continue token.
pub fn encode_continue_token(revision: i64, start: &str) -> String {
    Token::encode(revision, start)
}

/// Parses a bearer token, and asserts that a key verifies only tokens that it signed.
pub fn bearer_token(text: &str) {
    static KEY: LazyLock<PublicKey> = LazyLock::new(|| {
        let signer = Signer::from_pem(include_str!("auth/testdata/p256.pem"));
        signer.expect("the key is part of the program").public().clone()
    });
    // No token of this key exists outside this crate's tests.
    assert!(Jws::parse(text).is_none_or(|token| !KEY.verifies(&token)), "a token was forged");
    if let Some(token) = Jws::parse(text) {
        token.key_id();
        token.claims();
    }
    bootstrap_token::parse(text);
}

/// Parses a JSON web key, and asserts that its encoding decodes to the same key.
pub fn json_web_key(data: &[u8]) {
    let Ok(jwk) = json::from_slice::<Value>(data) else { return };
    if let Some(key) = PublicKey::from_jwk(&jwk) {
        assert_eq!(PublicKey::from_jwk(&key.to_jwk()), Some(key));
    }
}

/// Parses the public keys of a PEM file.
pub fn public_keys(pem: &[u8]) {
    for key in PublicKey::all_from_pem(pem).unwrap_or_default() {
        key.to_jwk();
    }
}

/// Parses a URL and the options in its query.
pub fn query(url: &str) {
    let (path, query) = url.split_once('?').unwrap_or((url, url));
    let query = Query::parse(Some(query));
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let _ = RequestInfo::new(&LowerMethod::of(&method), path, &query);
    }
    parse_path(path, &TABLE.rows());
    for kind in ["CreateOptions", "PatchOptions"] {
        let _ = WriteOptions::parse(&query, path, kind, path.is_empty());
    }
    let _ = DeleteOptions::parse(b"", "", &query);
    let _ = DeleteOptions::parse(url.as_bytes(), "application/json", &query);
    let _ = query.number("limit");
    selectors(query.get("labelSelector"));
}

/// Parses a string as the label selector and as the field selector of a list of pods, and as a shard selector. Checks
/// that a printed shard selector parses to the same selector.
pub fn selectors(text: &str) {
    if text.contains("shardRange")
        && let Ok(selector) = shard_selector::parse(text)
    {
        assert_eq!(shard_selector::parse(&selector.to_string()), Ok(selector), "{text}");
    }
    let pods = TABLE.get("v1", "pods").expect("pods are built in");
    for (labels, fields) in [(text, ""), ("", text)] {
        if let Ok(selectors) = Selectors::parse(&pods, labels, fields) {
            selectors.scope(&pods, "a");
            selectors.scope(&pods, "");
        }
    }
}

/// Applies the patch of an admission review to an object. Returns `None` if the review or its patch is invalid.
pub fn admission_answer(uid: &str, review: &Value, object: &Value) -> Option<Value> {
    crate::admission::webhook::mutated(uid, review, object)
}

/// Decodes a store's record after its checksum.
pub fn store_record(data: &[u8]) {
    store::fuzz::record(data);
}

/// Decrypts a stored value with keys of each provider, and asserts that decryption reverses encryption.
pub fn encrypted_value(data: &[u8]) {
    static ALL_PROVIDERS: LazyLock<Encryption> = LazyLock::new(|| {
        Encryption::from_config(ENCRYPTION, &crate::Clock::system())
            .expect("the configuration is valid")
    });
    for resource_prefix in ["/secrets", "/configmaps", "/events", "/pods"] {
        let context = DataContext { resource_prefix, key: "a/b" };
        let _ = ALL_PROVIDERS.transform_from_storage(context, data);
        let stored = ALL_PROVIDERS.transform_to_storage(context, Cow::Borrowed(data));
        let stored = stored.expect("any value can be encrypted");
        // Pods have no provider. Their unencrypted bytes may look like an encrypted value, which does not decrypt.
        if resource_prefix != "/pods" {
            let read = ALL_PROVIDERS.transform_from_storage(context, &stored);
            assert_eq!(read, Ok((Cow::Borrowed(data), false)), "it is read as it was written");
        }
    }
}

/// Parses a file of `--encryption-provider-config`.
pub fn encryption_configuration(text: &str) {
    let _ = Encryption::from_config(text, &crate::Clock::system());
}

/// Parses a file of `--authentication-config`.
pub fn authentication_configuration(text: &str) {
    let _ = configure(text.as_bytes(), &["https://example.com".to_owned()]);
}

/// Decodes frames of SPDY, and asserts that they do not depend on how the bytes arrive, and that their encoding decodes to the
/// same frames.
pub fn spdy_frames(data: &[u8]) {
    let whole = decoded(std::iter::once(data));
    assert_eq!(decoded(data.chunks(7)), whole);
    let mut encoder = streaming::Encoder::default();
    let mut bytes = Vec::new();
    for frame in &whole {
        bytes.extend_from_slice(&encoder.encode(frame).expect("a decoded frame can be encoded"));
    }
    assert_eq!(decoded(std::iter::once(&*bytes)), whole);
}

/// Decodes frames up to the first error, and joins the chunks of each data frame.
fn decoded<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<streaming::Frame> {
    use streaming::Frame;
    let (mut decoder, mut frames) = (streaming::Decoder::default(), Vec::new());
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            let frame = match decoder.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return frames,
            };
            match (frames.last_mut(), frame) {
                (
                    Some(Frame::Data { stream, fin: fin @ false, bytes }),
                    Frame::Data { stream: same, fin: last, bytes: more },
                ) if *stream == same => {
                    *fin = last;
                    *bytes = [&**bytes, &*more].concat().into();
                }
                (_, frame) => frames.push(frame),
            }
        }
    }
    frames
}
