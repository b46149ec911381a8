//! Signs JSON web tokens with an RSA or an elliptic-curve key, under the key's id as the API server computes it.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, KeyPair as _, RSA_PKCS1_SHA256,
    },
};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};

/// A private key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    #[error("no private key in PEM: {0}")]
    Pem(rustls_pki_types::pem::Error),
    #[error("the key is none of RSA with 2048 to 4096 bits, P-256 and P-384")]
    Unsupported,
}

/// The source of chance failed.
#[derive(Debug, thiserror::Error)]
#[error("a token cannot be signed")]
pub(super) struct SignError;

/// A private key and its id.
pub(super) struct Signer {
    key: Key,
    id: String,
}

enum Key {
    Rsa(rsa::KeyPair),
    Curve(EcdsaKeyPair, &'static Curve),
}

struct Curve {
    name: &'static str,
    signing: &'static EcdsaSigningAlgorithm,
    /// Its object identifier, in DER.
    oid: &'static [u8],
}

static CURVES: [Curve; 2] = [
    Curve {
        name: "ES256",
        signing: &ECDSA_P256_SHA256_FIXED_SIGNING,
        oid: &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
    },
    Curve {
        name: "ES384",
        signing: &ECDSA_P384_SHA384_FIXED_SIGNING,
        oid: &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22],
    },
];

/// Object identifiers of keys, in DER.
const CURVE_KEY: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const RSA_KEY: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

const NULL: &[u8] = &[0x05, 0x00];
const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 0x04;
const BITS: u8 = 0x03;

impl Signer {
    /// From the first private key in a PEM text: PKCS#1, PKCS#8 or SEC 1.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let chance = SystemRandom::new();
        let curve = |pkcs8: &dyn Fn(&Curve) -> Vec<u8>| {
            CURVES.iter().find_map(|curve| {
                let pair = EcdsaKeyPair::from_pkcs8(curve.signing, &pkcs8(curve), &chance);
                Some(Key::Curve(pair.ok()?, curve))
            })
        };
        let key = match PrivateKeyDer::from_pem_slice(pem).map_err(KeyError::Pem)? {
            PrivateKeyDer::Pkcs1(der) => {
                rsa::KeyPair::from_der(der.secret_pkcs1_der()).ok().map(Key::Rsa)
            }
            PrivateKeyDer::Sec1(der) => curve(&|curve| wrapped(curve, der.secret_sec1_der())),
            PrivateKeyDer::Pkcs8(der) => {
                let rsa = rsa::KeyPair::from_pkcs8(der.secret_pkcs8_der()).ok().map(Key::Rsa);
                rsa.or_else(|| curve(&|_| der.secret_pkcs8_der().to_vec()))
            }
            _ => None,
        };
        let key = key.ok_or(KeyError::Unsupported)?;
        let id = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, &key.public()));
        Ok(Self { key, id })
    }

    /// A token with these claims.
    pub(super) fn sign(&self, claims: &Value) -> Result<String, SignError> {
        let header = json!({"alg": self.key.algorithm(), "kid": self.id});
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(claims));
        let signature = self.key.sign(message.as_bytes()).map_err(|_| SignError)?;
        Ok(format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl Key {
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Curve(_, curve) => curve.name,
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, ring::error::Unspecified> {
        let chance = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &chance, message, &mut signature)?;
                Ok(signature)
            }
            Self::Curve(pair, _) => Ok(pair.sign(&chance, message)?.as_ref().to_vec()),
        }
    }

    /// The public key as SubjectPublicKeyInfo.
    fn public(&self) -> Vec<u8> {
        let (algorithm, key) = match self {
            Self::Rsa(pair) => (der(SEQUENCE, &[RSA_KEY, NULL]), pair.public().as_ref()),
            Self::Curve(pair, curve) => {
                (der(SEQUENCE, &[CURVE_KEY, curve.oid]), pair.public_key().as_ref())
            }
        };
        // No bit of the last byte is unused.
        der(SEQUENCE, &[&algorithm, &der(BITS, &[&[0], key])])
    }
}

/// A SEC 1 key as PKCS#8.
fn wrapped(curve: &Curve, sec1: &[u8]) -> Vec<u8> {
    let version = &[0x02, 0x01, 0x00];
    let algorithm = der(SEQUENCE, &[CURVE_KEY, curve.oid]);
    der(SEQUENCE, &[version, &algorithm, &der(OCTETS, &[sec1])])
}

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let bytes = content.len().to_be_bytes();
    let length = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let mut all = vec![tag];
    match content.len() {
        short @ 0..=0x7f => all.push(short as u8),
        _ => {
            all.push(0x80 | length.len() as u8);
            all.extend(length);
        }
    }
    all.extend(content);
    all
}

#[cfg(test)]
mod tests;
