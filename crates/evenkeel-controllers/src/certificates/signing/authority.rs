//! An authority: its certificate and its key, read anew where they have changed.

use super::{
    certificate::{By, Content, signed, to_be_signed},
    options::Pair,
    plan::{self, Expired},
    usage::{UnknownUsages, Usages},
};
use crate::{
    certificates::request::{Request, RequestError},
    keys::{Form, KeyError, PrivateKey},
};
use base64::prelude::*;
use evenkeel_api::time::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why an authority cannot be had.
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
    Other,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Usages(#[from] UnknownUsages),
    #[error(transparent)]
    Expired(#[from] Expired),
    #[error("the source of chance failed")]
    Chance,
}

/// An authority that may change while it is used.
pub(super) struct Authority {
    source: Pair,
    /// What was read last and made sense, with the texts that it was made from.
    last: Mutex<(Texts, Arc<Parsed>)>,
}

type Texts = (Vec<u8>, Vec<u8>);

impl Authority {
    /// Reads the authority's certificate and key from their files.
    pub(super) fn open(source: &Pair) -> Result<Self, AuthorityError> {
        let texts = read(source)?;
        let parsed = Arc::new(Parsed::new(&texts)?);
        Ok(Self { source: source.clone(), last: Mutex::new((texts, parsed)) })
    }

    /// As it is now. What makes no sense (a certificate that was written before its key) changes nothing. The files are
    /// small, and requests are few.
    pub(super) fn current(&self) -> Arc<Parsed> {
        let texts = match read(&self.source) {
            Ok(texts) => texts,
            Err(error) => return self.as_before(&error),
        };
        if self.lock().0 == texts {
            return Arc::clone(&self.lock().1);
        }
        match Parsed::new(&texts) {
            Ok(parsed) => {
                let parsed = Arc::new(parsed);
                *self.lock() = (texts, Arc::clone(&parsed));
                parsed
            }
            Err(error) => self.as_before(&error),
        }
    }

    fn as_before(&self, error: &AuthorityError) -> Arc<Parsed> {
        tracing::warn!(%error, source = ?self.source, "The authority stays as it was");
        Arc::clone(&self.lock().1)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Texts, Arc<Parsed>)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(source: &Pair) -> Result<Texts, AuthorityError> {
    let file = |path: &String| {
        std::fs::read(path).map_err(|error| AuthorityError::File(path.clone(), error))
    };
    match source {
        Pair::Files { certificate, key } => Ok((file(certificate)?, file(key)?)),
        Pair::Texts { certificate, key } => {
            Ok((certificate.as_bytes().into(), key.as_bytes().into()))
        }
    }
}

/// An authority as it is for one certificate.
pub(super) struct Parsed {
    /// Its name, DER.
    name: Vec<u8>,
    key_id: Vec<u8>,
    not_after: Timestamp,
    key: PrivateKey,
}

impl Parsed {
    fn new((certificate, key): &Texts) -> Result<Self, AuthorityError> {
        let broken = |error: &dyn std::fmt::Display| AuthorityError::Certificate(error.to_string());
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let all = all.map_err(|error| broken(&error))?;
        let [der] = &*all else { return Err(AuthorityError::Count(all.len())) };
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| broken(&error))?;
        let key = PrivateKey::from_pem(key, Form::Der)?;
        if key.public() != parsed.public_key().raw {
            return Err(AuthorityError::Other);
        }
        let key_id = parsed.iter_extensions().find_map(|one| match one.parsed_extension() {
            x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => {
                Some(id.0.to_vec())
            }
            _ => None,
        });
        let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp());
        Ok(Self {
            name: parsed.subject().as_raw().to_vec(),
            key_id: key_id.unwrap_or_default(),
            not_after: not_after.map_err(|error| broken(&error))?,
            key,
        })
    }

    /// A certificate for who asks, PEM. It has the names and the key of the request, and none of its extensions.
    pub(super) fn sign(
        &self,
        request: &Request,
        usages: &[String],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<String, SignError> {
        request.verify()?;
        let usages = Usages::read(usages)?;
        let (not_before, not_after) = plan::validity(lifetime, self.not_after, now)?;
        let mut serial = [0; 16];
        SystemRandom::new().fill(&mut serial).map_err(|_| SignError::Chance)?;
        let content = Content { request, usages: &usages, serial, not_before, not_after };
        let by = By { name: &self.name, key_id: &self.key_id, algorithm: self.key.algorithm() };
        let inner = to_be_signed(&content, &by);
        let signature = self.key.sign(&inner).map_err(|_| SignError::Chance)?;
        Ok(pem(&signed(&inner, &by, &signature)))
    }
}

/// In lines of 64 letters.
fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = &*text;
    while !rest.is_empty() {
        let (line, later) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = later;
    }
    pem + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests;
