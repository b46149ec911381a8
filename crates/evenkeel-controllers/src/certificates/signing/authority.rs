//! Certificate authority: its certificate and key, and the signing of requests.

use super::{
    certificate::{Content, IssuerFields, encode_certificate, encode_tbs_certificate},
    plan::{self, ExpiredError},
    usage::{UnknownUsages, Usages},
};
use crate::certificates::request::{ParsedRequest, RequestError};
use base64::prelude::*;
use evenkeel_api::time::Timestamp;
use evenkeel_x509::keys::{Form, KeyError, PrivateKey};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use std::{io, time::Duration};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Error in reading a certificate authority.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthorityError {
    #[error("cannot read {0}: {1}")]
    File(String, io::Error),
    #[error("expected 1 certificate, found {0}")]
    Count(usize),
    #[error("the certificate cannot be read: {0}")]
    Certificate(String),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the key is not that of the certificate")]
    KeyMismatch,
}

/// Error in signing a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Usages(#[from] UnknownUsages),
    #[error(transparent)]
    Expired(#[from] ExpiredError),
    #[error("unable to generate a serial number: the random number generator failed")]
    RandomNumbers,
}

/// PEM of an authority's certificate and key.
#[derive(PartialEq, Eq)]
pub(super) struct PemTexts {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

/// A random serial number of a certificate.
pub(super) type Serial = [u8; 16];

/// A certificate authority with its key. Upstream: `CertificateAuthority`.
pub(super) struct CertificateAuthority {
    /// Subject of its certificate, in DER.
    name: Vec<u8>,
    /// Subject key identifier of its certificate. Empty if it has none.
    key_id: Vec<u8>,
    /// End of its certificate's validity.
    pub(super) not_after: Timestamp,
    key: PrivateKey,
}

impl CertificateAuthority {
    /// Parses the authority's certificate and key.
    pub(super) fn new(texts: &PemTexts) -> Result<Self, AuthorityError> {
        let invalid =
            |error: &dyn std::fmt::Display| AuthorityError::Certificate(error.to_string());
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&texts.certificate).collect();
        let certificates = certificates.map_err(|error| invalid(&error))?;
        let [der] = &*certificates else {
            return Err(AuthorityError::Count(certificates.len()));
        };
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| invalid(&error))?;
        let key = PrivateKey::from_pem(&texts.key, Form::Der)?;
        if key.public() != parsed.public_key().raw {
            return Err(AuthorityError::KeyMismatch);
        }
        let key_id =
            parsed.iter_extensions().find_map(|extension| match extension.parsed_extension() {
                x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => {
                    Some(id.0.to_vec())
                }
                _ => None,
            });
        let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp());
        Ok(Self {
            name: parsed.subject().as_raw().to_vec(),
            key_id: key_id.unwrap_or_default(),
            not_after: not_after.map_err(|error| invalid(&error))?,
            key,
        })
    }

    /// Returns a certificate for the request, in PEM. The certificate has the request's subject, alternative names
    /// and key, but none of its other extensions. Upstream: `Sign`.
    pub(super) fn sign(
        &self,
        request: &ParsedRequest,
        usages: &[String],
        serial: Serial,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<String, SignError> {
        request.verify()?;
        let usages = Usages::parse(usages)?;
        let validity = plan::validity(lifetime, self.not_after, now)?;
        let content = Content { request, usages: &usages, serial, validity };
        let issuer = IssuerFields {
            name: &self.name,
            key_id: &self.key_id,
            algorithm: self.key.algorithm(),
        };
        let to_sign = encode_tbs_certificate(&content, &issuer);
        let signature = self.key.sign(&to_sign).map_err(|_| SignError::RandomNumbers)?;
        Ok(encode_pem(&encode_certificate(&to_sign, &issuer, &signature)))
    }
}

/// Encodes a certificate as PEM, in lines of 64 characters.
fn encode_pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = &*text;
    while !rest.is_empty() {
        let (line, following) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = following;
    }
    pem + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
pub(super) mod tests;
