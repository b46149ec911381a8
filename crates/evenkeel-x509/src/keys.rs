//! Private keys that sign tokens and certificates: RSA, P-256, P-384, Ed25519.

use ring::{
    error::Unspecified,
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING,
        ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    },
};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};

/// Error from reading a private key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The PEM contains no block with a private key.
    #[error("no private key in PEM: {0}")]
    Pem(rustls_pki_types::pem::Error),
    /// The key type is not supported.
    #[error("the key is none of RSA with 2048 to 4096 bits, P-256, P-384 and Ed25519")]
    Unsupported,
}

/// Encoding of elliptic-curve signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Both integers at full length, as in JSON web tokens.
    Fixed,
    /// A DER sequence, as in X.509 certificates.
    Der,
}

/// Signature and hash algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA PKCS#1 v1.5 with SHA-256.
    RsaSha256,
    /// ECDSA on P-256 with SHA-256.
    P256Sha256,
    /// ECDSA on P-384 with SHA-384.
    P384Sha384,
    /// Ed25519, without a separate hash.
    Ed25519,
}

/// Private key. It has no `Debug` implementation, so that it is never logged.
pub enum PrivateKey {
    /// An RSA key of 2048 to 4096 bits.
    Rsa(rsa::KeyPair),
    /// An elliptic-curve key and its curve.
    Curve(EcdsaKeyPair, &'static Curve),
    /// An Ed25519 key.
    Edwards(Ed25519KeyPair),
}

/// Parameters of an elliptic curve.
pub struct Curve {
    algorithm: Algorithm,
    /// Signing algorithm for [`Form::Fixed`].
    fixed: &'static EcdsaSigningAlgorithm,
    /// Signing algorithm for [`Form::Der`].
    der: &'static EcdsaSigningAlgorithm,
    /// Object identifier of the curve, DER.
    oid: &'static [u8],
}

static CURVES: [Curve; 2] = [
    Curve {
        algorithm: Algorithm::P256Sha256,
        fixed: &ECDSA_P256_SHA256_FIXED_SIGNING,
        der: &ECDSA_P256_SHA256_ASN1_SIGNING,
        oid: &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
    },
    Curve {
        algorithm: Algorithm::P384Sha384,
        fixed: &ECDSA_P384_SHA384_FIXED_SIGNING,
        der: &ECDSA_P384_SHA384_ASN1_SIGNING,
        oid: &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22],
    },
];

/// Object identifiers of key types, DER.
const CURVE_KEY_OID: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const RSA_KEY_OID: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EDWARDS_KEY_OID: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// The DER value NULL.
const NULL: &[u8] = &[0x05, 0x00];
// Tags of DER values.
const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
const BIT_STRING: u8 = 0x03;

impl PrivateKey {
    /// Parses the first private key in PEM: PKCS#1, PKCS#8 or SEC 1.
    ///
    /// # Errors
    /// Fails if the PEM has no private key, or a key of an unsupported type.
    pub fn from_pem(pem: &[u8], form: Form) -> Result<Self, KeyError> {
        Self::from_der(&PrivateKeyDer::from_pem_slice(pem).map_err(KeyError::Pem)?, form)
    }

    /// Parses a private key in DER. `form` sets how an elliptic-curve key encodes its signatures.
    /// # Errors
    /// Fails if the key's type is not supported.
    pub fn from_der(der: &PrivateKeyDer<'_>, form: Form) -> Result<Self, KeyError> {
        let key = match der {
            PrivateKeyDer::Pkcs1(der) => {
                rsa::KeyPair::from_der(der.secret_pkcs1_der()).ok().map(Self::Rsa)
            }
            PrivateKeyDer::Sec1(der) => {
                Self::curve_from_pkcs8(form, |curve| sec1_to_pkcs8(curve, der.secret_sec1_der()))
            }
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                let rsa = || rsa::KeyPair::from_pkcs8(der).ok().map(Self::Rsa);
                // Keys from openssl lack the public key.
                let edwards = || Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok();
                rsa()
                    .or_else(|| Self::curve_from_pkcs8(form, |_| der.to_vec()))
                    .or_else(|| edwards().map(Self::Edwards))
            }
            _ => None,
        };
        key.ok_or(KeyError::Unsupported)
    }

    /// Tries each supported curve. `pkcs8` returns the key in PKCS#8 for the tried curve.
    fn curve_from_pkcs8(form: Form, pkcs8: impl Fn(&Curve) -> Vec<u8>) -> Option<Self> {
        let rng = SystemRandom::new();
        CURVES.iter().find_map(|curve| {
            let algorithm = if form == Form::Fixed { curve.fixed } else { curve.der };
            let pair = EcdsaKeyPair::from_pkcs8(algorithm, &pkcs8(curve), &rng).ok()?;
            Some(Self::Curve(pair, curve))
        })
    }

    /// Returns the signature algorithm.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa(_) => Algorithm::RsaSha256,
            Self::Curve(_, curve) => curve.algorithm,
            Self::Edwards(_) => Algorithm::Ed25519,
        }
    }

    /// Signs a message.
    ///
    /// # Errors
    /// Fails if the random number generator fails.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let rng = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &rng, message, &mut signature)?;
                Ok(signature)
            }
            Self::Curve(pair, _) => Ok(pair.sign(&rng, message)?.as_ref().to_vec()),
            Self::Edwards(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }

    /// Returns the public key as a DER-encoded SubjectPublicKeyInfo.
    pub fn public(&self) -> Vec<u8> {
        let (algorithm, key) = match self {
            Self::Rsa(pair) => (der_value(SEQUENCE, &[RSA_KEY_OID, NULL]), pair.public().as_ref()),
            Self::Curve(pair, curve) => {
                (der_value(SEQUENCE, &[CURVE_KEY_OID, curve.oid]), pair.public_key().as_ref())
            }
            Self::Edwards(pair) => {
                (der_value(SEQUENCE, &[EDWARDS_KEY_OID]), pair.public_key().as_ref())
            }
        };
        // The leading zero is the number of unused bits of the last byte.
        der_value(SEQUENCE, &[&algorithm, &der_value(BIT_STRING, &[&[0], key])])
    }
}

/// Wraps a SEC 1 key in PKCS#8.
fn sec1_to_pkcs8(curve: &Curve, sec1: &[u8]) -> Vec<u8> {
    let version = &[0x02, 0x01, 0x00];
    let algorithm = der_value(SEQUENCE, &[CURVE_KEY_OID, curve.oid]);
    der_value(SEQUENCE, &[version, &algorithm, &der_value(OCTET_STRING, &[sec1])])
}

/// Encodes a DER value: tag, length, and the concatenated parts. A length above 127 is encoded as the number of its
/// bytes, marked with the highest bit, and these bytes.
fn der_value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut value = vec![tag];
    match content.len() {
        short @ 0..=0x7f => value.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let leading_zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let length = &bytes[leading_zeros..];
            value.push(0x80 | length.len() as u8);
            value.extend(length);
        }
    }
    value.extend(content);
    value
}
