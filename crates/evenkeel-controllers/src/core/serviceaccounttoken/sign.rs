//! Signer of JSON web tokens with an RSA or elliptic-curve key. The signer computes the key id as the API server
//! does.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use evenkeel_x509::keys::{Algorithm, Form, KeyError, PrivateKey};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// Failure of the random number generator.
#[derive(Debug, thiserror::Error)]
#[error("a token cannot be signed")]
pub(super) struct SignError;

/// A private key and its id.
pub(super) struct Signer {
    key: PrivateKey,
    algorithm: &'static str,
    id: String,
}

impl Signer {
    /// Parses the first private key in PEM: PKCS#1, PKCS#8 or SEC 1.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        // JWS has ECDSA signatures of fixed length, not in DER.
        let key = PrivateKey::from_pem(pem, Form::Fixed)?;
        let algorithm = match key.algorithm() {
            Algorithm::RsaSha256 => "RS256",
            Algorithm::P256Sha256 => "ES256",
            Algorithm::P384Sha384 => "ES384",
            // The API server does not accept tokens signed with Ed25519.
            Algorithm::Ed25519 => return Err(KeyError::Unsupported),
        };
        let id = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, &key.public()));
        Ok(Self { key, algorithm, id })
    }

    /// Returns a signed token with these claims.
    pub(super) fn sign(&self, claims: &Value) -> Result<String, SignError> {
        let header = json!({"alg": self.algorithm, "kid": self.id});
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(claims));
        let signature = self.key.sign(message.as_bytes()).map_err(|_| SignError)?;
        Ok(format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests;
