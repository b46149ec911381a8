//! What fuzz targets call of the decoders that are private to this crate (`evenkeel-fuzz`). No program uses it.

use std::borrow::Cow;
use std::sync::LazyLock;

use evenkeel_api::json;
use http::Method;
use serde_json::Value;

use crate::auth::{Jws, PublicKey, Signer, bootstrap_token, configure};
use crate::encryption::Encryption;
use crate::request::{Query, RequestInfo, WriteOptions};
use crate::resource::{Table, parse_path};
use crate::selector::Selectors;
use crate::store::{self, DataContext, Transformer as _};
use crate::verbs::delete_options::DeleteOptions;
use crate::verbs::list::Token;

/// One provider of each kind. The keys are made for this.
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

/// Decodes a continue token: the revision, and the key after which the next chunk starts.
///
/// # Errors
/// Why it is refused.
pub fn continue_token(text: &str) -> Result<(i64, String), String> {
    Token::read(text).map(|token| (token.revision(), token.after().to_owned()))
}

/// Encodes a continue token.
pub fn encode_continue_token(revision: i64, after: &str) -> String {
    Token::encode(revision, after)
}

/// Takes a bearer token apart and asserts that a key verifies nothing that it did not sign.
pub fn bearer_token(text: &str) {
    static KEY: LazyLock<PublicKey> = LazyLock::new(|| {
        let signer = Signer::from_pem(include_str!("auth/testdata/p256.pem"));
        signer.expect("the key is part of the program").public().clone()
    });
    // No token of this key exists outside of this crate's tests.
    assert!(Jws::parse(text).is_none_or(|token| !KEY.verifies(&token)), "a token was forged");
    if let Some(token) = Jws::parse(text) {
        token.key_id();
        token.claims();
    }
    bootstrap_token::parse(text);
}

/// Reads a JSON web key, and asserts that it is written as it was read.
pub fn json_web_key(data: &[u8]) {
    let Ok(jwk) = json::from_slice::<Value>(data) else { return };
    if let Some(key) = PublicKey::from_jwk(&jwk) {
        assert_eq!(PublicKey::from_jwk(&key.to_jwk()), Some(key));
    }
}

/// Reads the public keys of a PEM text.
pub fn public_keys(pem: &[u8]) {
    for key in PublicKey::all_from_pem(pem).unwrap_or_default() {
        key.to_jwk();
    }
}

/// Takes a URL and the options in its query apart.
pub fn query(url: &str) {
    let (path, query) = url.split_once('?').unwrap_or((url, url));
    let query = Query::parse(Some(query));
    for method in [Method::GET, Method::POST, Method::DELETE] {
        RequestInfo::new(&method, path, &query);
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

/// Reads a text as the label and as the field selector of a list of pods.
pub fn selectors(text: &str) {
    let pods = TABLE.get("v1", "pods").expect("pods are built in");
    for (labels, fields) in [(text, ""), ("", text)] {
        if let Ok(selectors) = Selectors::parse(&pods, labels, fields) {
            selectors.scope(&pods, "a");
            selectors.scope(&pods, "");
        }
    }
}

/// Applies the patch in a webhook's admission review to an object; `None` if the answer or its patch is refused.
pub fn admission_answer(uid: &str, review: &Value, object: &Value) -> Option<Value> {
    crate::admission::webhook::mutated(uid, review, object)
}

/// Reads the rest of a store's record behind its checksum.
pub fn store_record(data: &[u8]) {
    store::fuzz::record(data);
}

/// Decrypts a stored value with keys of each provider. What they encrypt, they decrypt.
pub fn encrypted_value(data: &[u8]) {
    static ENCRYPTION_OF_ALL: LazyLock<Encryption> =
        LazyLock::new(|| Encryption::from_config(ENCRYPTION).expect("it is valid"));
    for resource_prefix in ["/secrets", "/configmaps", "/events", "/pods"] {
        let context = DataContext { resource_prefix, key: "a/b" };
        let _ = ENCRYPTION_OF_ALL.transform_from_storage(context, data);
        let stored = ENCRYPTION_OF_ALL.transform_to_storage(context, Cow::Borrowed(data));
        let stored = stored.expect("any value can be encrypted");
        // A value that is not encrypted must not look as if it were.
        if resource_prefix != "/pods" {
            let read = ENCRYPTION_OF_ALL.transform_from_storage(context, &stored);
            assert_eq!(read, Ok((Cow::Borrowed(data), false)), "it is read as it was written");
        }
    }
}

/// Reads a file of `--encryption-provider-config`.
pub fn encryption_configuration(text: &str) {
    let _ = Encryption::from_config(text);
}

/// Reads a file of `--authentication-config`.
pub fn authentication_configuration(text: &str) {
    let _ = configure(text.as_bytes(), &["https://example.com".to_owned()]);
}
