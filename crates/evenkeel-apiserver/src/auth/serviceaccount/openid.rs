//! OpenID discovery documents of the issuer. Verifiers outside the cluster use them to verify service account tokens.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::jose::PublicKey;

/// Returns the metadata of the issuer.
///
/// Upstream: `openIDConfigJSON`.
pub(super) fn configuration(issuer: &str, jwks_uri: &str, keys: &[PublicKey]) -> Value {
    let algorithms: BTreeSet<&str> = keys.iter().map(PublicKey::algorithm).collect();
    json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    })
}

/// Returns the key set that verifies the issuer's tokens.
///
/// Upstream: `openIDKeysetJSON`.
pub(super) fn keys(keys: &[PublicKey]) -> Value {
    let keys: Vec<Value> = keys.iter().map(PublicKey::to_jwk).collect();
    json!({ "keys": keys })
}
