//! JSON web tokens in compact form, and the public keys that verify them.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Compact serialization (RFC 7515, 7.1) | `parse` |
//! | A token with critical header parameters is refused (RFC 7515, 4.1.11) | `parse` |
//! | Signature algorithms (RFC 7518, 3.1): RS, PS and ES with SHA-256, SHA-384 and SHA-512, but not ES512 | `Algorithm` |
//! | JSON web keys (RFC 7517; RFC 7518, 6.2 and 6.3) | `from_jwk`, `to_jwk` |

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use evenkeel_api::json;
use evenkeel_x509::keys::{Algorithm as KeyAlgorithm, Form, KeyError, PrivateKey};
use ring::digest::{SHA256, digest};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, EcdsaVerificationAlgorithm,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use serde::Deserialize;
use serde_json::{Value, json};
use x509_parser::oid_registry::{OID_EC_P256, OID_NIST_EC_P384};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo, X509Certificate};
use x509_parser::public_key::PublicKey as Parsed;

/// Parsed JSON web token, a JSON web signature (JWS) over claims. The signature is not verified yet.
pub(crate) struct Jws<'a> {
    header: Header,
    /// Signed part of the token: encoded header and claims.
    message: &'a str,
    /// Decoded claims: JSON.
    claims: Vec<u8>,
    signature: Vec<u8>,
}

/// Header of a signed token.
#[derive(Deserialize)]
struct Header {
    /// Name of the signature algorithm.
    alg: String,
    /// ID of the signing key.
    #[serde(default)]
    kid: String,
    /// Header parameters that a verifier must understand. This server understands none.
    #[serde(default)]
    crit: Option<Value>,
}

impl<'a> Jws<'a> {
    /// Parses a token. Returns `None` if it is not a signed token in compact form.
    pub(crate) fn parse(token: &'a str) -> Option<Self> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        let header: Header = serde_json::from_slice(&BASE64.decode(header).ok()?).ok()?;
        if header.crit.is_some() {
            return None;
        }
        let (claims, signature) = (BASE64.decode(claims).ok()?, BASE64.decode(signature).ok()?);
        Some(Self { header, message, claims, signature })
    }

    /// Returns the claims, or `None` if they are not a JSON object.
    pub(crate) fn claims(&self) -> Option<Value> {
        json::from_slice(&self.claims).ok().filter(Value::is_object)
    }

    /// Returns the ID of the signing key; empty if the token names none.
    pub(crate) fn key_id(&self) -> &str {
        &self.header.kid
    }
}

/// Signature algorithm and the type of key that it needs.
enum Algorithm {
    Rsa(&'static RsaParameters),
    Ecdsa(Curve, &'static EcdsaVerificationAlgorithm),
}

static ALGORITHMS: [(&str, Algorithm); 8] = [
    ("RS256", Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA256)),
    ("RS384", Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA384)),
    ("RS512", Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA512)),
    ("PS256", Algorithm::Rsa(&RSA_PSS_2048_8192_SHA256)),
    ("PS384", Algorithm::Rsa(&RSA_PSS_2048_8192_SHA384)),
    ("PS512", Algorithm::Rsa(&RSA_PSS_2048_8192_SHA512)),
    ("ES256", Algorithm::Ecdsa(Curve::P256, &ECDSA_P256_SHA256_FIXED)),
    ("ES384", Algorithm::Ecdsa(Curve::P384, &ECDSA_P384_SHA384_FIXED)),
];

/// Elliptic curve of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
}

impl Curve {
    /// Returns the name of the curve in JSON web keys.
    fn name(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
        }
    }

    /// Returns the length of a point's coordinate in bytes.
    fn coordinate_length(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
        }
    }
}

/// Public key that verifies tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicKey {
    /// `kid` of the tokens that the key verifies; may be empty.
    id: String,
    material: Material,
}

/// Numbers of a public key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    /// Modulus and exponent, big-endian, without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// Uncompressed point on the curve: a byte `4` and both coordinates.
    Ecdsa(Curve, Vec<u8>),
}

impl PublicKey {
    /// Returns the key's ID.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Parses a JSON web key. Returns `None` for an unsupported type of key.
    pub(crate) fn from_jwk(jwk: &Value) -> Option<Self> {
        let text = |field: &str| jwk.get(field).and_then(Value::as_str).unwrap_or_default();
        let number = |field: &str| BASE64.decode(text(field).trim_end_matches('=')).ok();
        let material = match (text("kty"), text("crv")) {
            ("RSA", _) => Material::Rsa {
                n: without_leading_zeros(&number("n")?),
                e: without_leading_zeros(&number("e")?),
            },
            ("EC", name) => {
                let curves = [Curve::P256, Curve::P384].into_iter();
                let curve = curves.into_iter().find(|curve| curve.name() == name)?;
                let (x, y) = (number("x")?, number("y")?);
                let length = curve.coordinate_length();
                if x.len() != length || y.len() != length {
                    return None;
                }
                Material::Ecdsa(curve, [&[4][..], &x, &y].concat())
            }
            _ => return None,
        };
        Some(Self { id: text("kid").to_owned(), material })
    }

    /// Parses all keys of a PEM file: public keys, certificates and private keys. Private keys and certificates are
    /// converted to their public keys.
    ///
    /// Upstream: `PublicKeysFromFile`.
    pub(crate) fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, String> {
        let mut keys = Vec::new();
        for block in Pem::iter_from_buffer(pem) {
            let block = block.map_err(|error| error.to_string())?;
            let der = block.contents.as_slice();
            let public_of_private = |der: PrivateKeyDer<'_>| {
                let key = PrivateKey::from_der(&der, Form::Fixed).map_err(|e| e.to_string())?;
                Self::from_public_key_info(&key.public())
            };
            keys.push(match &*block.label {
                "PUBLIC KEY" => Self::from_public_key_info(der)?,
                "CERTIFICATE" => {
                    let (_, certificate) =
                        X509Certificate::from_der(der).map_err(|error| error.to_string())?;
                    Self::from_public_key_info(certificate.public_key().raw)?
                }
                "RSA PRIVATE KEY" => public_of_private(PrivatePkcs1KeyDer::from(der).into())?,
                "EC PRIVATE KEY" => public_of_private(PrivateSec1KeyDer::from(der).into())?,
                "PRIVATE KEY" => public_of_private(PrivatePkcs8KeyDer::from(der).into())?,
                _ => continue,
            });
        }
        if keys.is_empty() {
            return Err("it contains no PEM of an RSA, P-256 or P-384 key".to_owned());
        }
        Ok(keys)
    }

    /// Parses a SubjectPublicKeyInfo in DER. The key's ID is the SHA-256 digest of `der`.
    ///
    /// Upstream: `keyIDFromPublicKey`.
    pub(crate) fn from_public_key_info(der: &[u8]) -> Result<Self, String> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|error| error.to_string())?;
        let unsupported = || "the key is none of RSA, P-256 and P-384".to_owned();
        let material = match info.parsed().map_err(|error| error.to_string())? {
            Parsed::RSA(key) => Material::Rsa {
                n: without_leading_zeros(key.modulus),
                e: without_leading_zeros(key.exponent),
            },
            Parsed::EC(point) => {
                let parameters = info.algorithm.parameters.as_ref();
                let oid = parameters.and_then(|any| any.as_oid().ok()).ok_or_else(unsupported)?;
                let curve = if oid == OID_EC_P256 {
                    Curve::P256
                } else if oid == OID_NIST_EC_P384 {
                    Curve::P384
                } else {
                    return Err(unsupported());
                };
                Material::Ecdsa(curve, point.data().to_vec())
            }
            _ => return Err(unsupported()),
        };
        Ok(Self { id: BASE64.encode(digest(&SHA256, der)), material })
    }

    /// Returns whether the key verifies the token's signature. The algorithm must match the type of key.
    pub(crate) fn verifies(&self, token: &Jws<'_>) -> bool {
        let algorithm = ALGORITHMS.iter().find(|(name, _)| *name == token.header.alg);
        let (message, signature) = (token.message.as_bytes(), &*token.signature);
        let verified = match (algorithm.map(|(_, algorithm)| algorithm), &self.material) {
            (Some(Algorithm::Rsa(parameters)), Material::Rsa { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Some(Algorithm::Ecdsa(curve, algorithm)), Material::Ecdsa(key_curve, point))
                if curve == key_curve =>
            {
                UnparsedPublicKey::new(*algorithm, point).verify(message, signature)
            }
            _ => return false,
        };
        verified.is_ok()
    }

    /// Returns the name of the algorithm that signs service account tokens with this key.
    ///
    /// Upstream: `algorithmFromPublicKey`.
    pub(crate) fn algorithm(&self) -> &'static str {
        match self.material {
            Material::Rsa { .. } => "RS256",
            Material::Ecdsa(Curve::P256, _) => "ES256",
            Material::Ecdsa(Curve::P384, _) => "ES384",
        }
    }

    /// Returns the key as a JSON web key.
    ///
    /// Upstream: `jwkFromPublicKey`.
    pub(crate) fn to_jwk(&self) -> Value {
        let (id, algorithm) = (&self.id, self.algorithm());
        match &self.material {
            Material::Rsa { n, e } => {
                let (n, e) = (BASE64.encode(n), BASE64.encode(e));
                json!({"use": "sig", "kid": id, "alg": algorithm, "kty": "RSA", "n": n, "e": e})
            }
            Material::Ecdsa(curve, point) => {
                let (name, length) = (curve.name(), curve.coordinate_length());
                // Skip the byte that marks an uncompressed point.
                let coordinates = point.get(1..).unwrap_or_default();
                let (x, y) = coordinates.split_at_checked(length).unwrap_or_default();
                let (x, y) = (BASE64.encode(x), BASE64.encode(y));
                json!({"use": "sig", "kid": id, "alg": algorithm, "kty": "EC", "crv": name, "x": x, "y": y})
            }
        }
    }
}

/// Signer of tokens, with one private key.
///
/// Upstream: `JWTTokenGenerator`.
pub(crate) struct Signer {
    key: PrivateKey,
    public: PublicKey,
    pem: String,
}

impl Signer {
    /// Parses the first private key of a PEM file: RSA, P-256 or P-384.
    pub(crate) fn from_pem(pem: &str) -> Result<Self, String> {
        let key =
            PrivateKey::from_pem(pem.as_bytes(), Form::Fixed).map_err(|error| error.to_string())?;
        // Clients cannot verify Ed25519 signatures of service account tokens.
        if key.algorithm() == KeyAlgorithm::Ed25519 {
            return Err(KeyError::Unsupported.to_string());
        }
        let public = PublicKey::from_public_key_info(&key.public())?;
        Ok(Self { key, public, pem: pem.to_owned() })
    }

    /// Returns the public key that verifies the signatures.
    pub(crate) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns the key in PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns a signed token with these claims, or `None` if the random number generator fails.
    pub(crate) fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": self.public.algorithm(), "kid": self.public.id});
        let part = |value: &Value| BASE64.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(claims));
        let signature = self.key.sign(message.as_bytes()).ok()?;
        Some(format!("{message}.{}", BASE64.encode(signature)))
    }
}

/// Strips leading zeros from a big-endian number.
fn without_leading_zeros(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

#[cfg(test)]
mod tests;
