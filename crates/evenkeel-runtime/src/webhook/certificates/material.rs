//! Keys and certificates in the Secret of a Service, and their checks.

use super::CertificateError;
use evenkeel_api::time::Timestamp;
use evenkeel_x509::CertPool;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::{
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    sign::CertifiedKey,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Keys of a Secret's data. A Secret of type `kubernetes.io/tls` has the first two.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";

/// Names of a Service, and of the Secret with its certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::webhook) struct Names {
    pub(super) service: String,
    pub(super) namespace: String,
    pub(super) secret: String,
}

impl Names {
    pub(super) fn new(
        service: String,
        namespace: String,
        secret: Option<String>,
    ) -> Result<Self, CertificateError> {
        let secret = secret.unwrap_or_else(|| format!("{service}-tls"));
        let names = Self { service, namespace, secret };
        for host in names.hosts() {
            if ServerName::try_from(host.as_str()).is_err() {
                return Err(CertificateError::Name(host));
            }
        }
        Ok(names)
    }

    /// Returns the host names of the Service. API servers use the third one.
    pub(super) fn hosts(&self) -> [String; 4] {
        let Self { service, namespace, .. } = self;
        [
            service.clone(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ]
    }
}

/// Content of the Secret. It has no `Debug` implementation, so that keys are never logged.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Material {
    /// Certificates of all trusted CAs, as PEM. The first CA signs.
    pub(super) authorities: Vec<u8>,
    /// Key of the first CA, PEM.
    pub(super) authority_key: Vec<u8>,
    /// The serving certificate, PEM.
    pub(super) certificate: Vec<u8>,
    /// Key of the serving certificate, PEM.
    pub(super) key: Vec<u8>,
}

impl Material {
    pub(super) fn of(secret: &Secret) -> Self {
        let bytes = |key: &str| {
            let value = secret.data.as_ref().and_then(|data| data.get(key));
            value.map(|ByteString(bytes)| bytes.clone()).unwrap_or_default()
        };
        Self {
            authorities: bytes(AUTHORITIES),
            authority_key: bytes(AUTHORITY_KEY),
            certificate: bytes(CERTIFICATE),
            key: bytes(KEY),
        }
    }

    /// Returns the `data` of the Secret.
    pub(super) fn data(&self) -> Value {
        let data: BTreeMap<&str, ByteString> = [
            (AUTHORITIES, &self.authorities),
            (AUTHORITY_KEY, &self.authority_key),
            (CERTIFICATE, &self.certificate),
            (KEY, &self.key),
        ]
        .into_iter()
        .map(|(key, bytes)| (key, ByteString(bytes.clone())))
        .collect();
        json!(data)
    }

    /// Returns the certificates of all CAs, and `None` for each PEM section that is not a certificate.
    pub(super) fn authorities(&self) -> Vec<Option<Authority>> {
        let sections = CertificateDer::pem_slice_iter(&self.authorities);
        sections.map(|section| Authority::of(&section.ok()?)).collect()
    }

    /// Returns the CA that signs, with its key.
    ///
    /// # Errors
    /// Returns the reason why it cannot sign.
    pub(super) fn signer(&self) -> Result<(Authority, KeyPair), String> {
        let first = self.authorities().into_iter().next().flatten();
        let authority = first.ok_or("it has no certificate of a CA")?;
        let key = key_pair(&self.authority_key).ok_or("it has no key of the CA")?;
        if authority.public_key != key.subject_public_key_info() {
            return Err("the key of the CA does not belong to its certificate".to_owned());
        }
        Ok((authority, key))
    }

    /// Returns the validity of the serving certificate, if the CAs verify it for all names of the Service at `now`.
    ///
    /// # Errors
    /// Returns the reason why clients would refuse it.
    pub(super) fn check_serving(&self, names: &Names, now: Timestamp) -> Result<Validity, String> {
        let key = certified_key(&self.certificate, &self.key)?;
        let (leaf, intermediates) =
            key.cert.split_first().ok_or("it has no serving certificate")?;
        let validity = Validity::of(leaf).ok_or("the serving certificate cannot be read")?;
        let pool = CertPool::from_pem(&self.authorities).map_err(|error| error.to_string())?;
        let verifier = pool.server_verifier(Arc::new(ring::default_provider()));
        // A replica whose clock is ahead may have issued it.
        let at = unix_time(now.max(validity.from));
        for host in names.hosts() {
            let name = ServerName::try_from(host.as_str()).map_err(|error| error.to_string())?;
            verifier.verify_server_cert(leaf, intermediates, &name, &[], at).map_err(|error| {
                format!("the serving certificate is not valid for {host}: {error}")
            })?;
        }
        Ok(validity)
    }
}

/// Certificate of a CA.
pub(super) struct Authority {
    pub(super) der: CertificateDer<'static>,
    pub(super) validity: Validity,
    /// Its SubjectPublicKeyInfo, DER.
    public_key: Vec<u8>,
}

impl Authority {
    fn of(der: &CertificateDer<'static>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
        if !parsed.is_ca() {
            return None;
        }
        let public_key = parsed.public_key().raw.to_vec();
        let validity = Validity::of_parsed(&parsed);
        Some(Self { der: der.clone(), validity, public_key })
    }
}

/// Period in which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

impl Validity {
    fn of(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
        Some(Self::of_parsed(&parsed))
    }

    fn of_parsed(parsed: &x509_parser::certificate::X509Certificate<'_>) -> Self {
        let time = |seconds: i64| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        let validity = parsed.validity();
        Self {
            from: time(validity.not_before.timestamp()),
            until: time(validity.not_after.timestamp()),
        }
    }

    /// Returns the time of renewal: after two thirds of the validity.
    pub(super) fn renewal_time(self) -> Timestamp {
        let lifetime = self.until.duration_since(self.from);
        self.from.checked_add(lifetime * 2 / 3).unwrap_or(self.until)
    }
}

/// Parses a private key, PEM.
fn key_pair(pem: &[u8]) -> Option<KeyPair> {
    KeyPair::from_pem(std::str::from_utf8(pem).ok()?).ok()
}

/// Returns a certificate chain with its key, both PEM, ready to serve.
///
/// # Errors
/// Returns the reason why they cannot be used.
pub(super) fn certified_key(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate is not PEM: {error}"))?;
    if chain.is_empty() {
        return Err("there is no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("there is no private key: {error}"))?;
    let provider: CryptoProvider = ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider)
        .map_err(|error| format!("certificate and key cannot be used: {error}"))
}

fn unix_time(at: Timestamp) -> UnixTime {
    let seconds = u64::try_from(at.as_second()).unwrap_or_default();
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}
