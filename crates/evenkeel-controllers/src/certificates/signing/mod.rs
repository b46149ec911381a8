//! CSR signer: signs approved CertificateSigningRequests with the key of their signer, if they obey the signer's rules.
//!
//! Upstream: `pkg/controller/certificates/signer`, `…/authority`.

mod authority;
mod certificate;
mod options;
mod plan;
#[cfg(test)]
mod tests;
mod usage;

pub use options::{Options, Pair};

use super::SigningRequest;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use authority::{AuthorityError, CertificateAuthority, PemTexts};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{
    cache::Cache,
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use plan::{Decision, Issuer, Observed, Signer};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The CSR signer. Upstream: `newCertificateSigningRequestSigningControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "certificatesigningrequest-signing-controller",
    aliases: &["csrsigning"],
    queue: "certificate",
    client: "certificate-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let options = &context.options.signing;
    let start_error = |reason: String| StartError { controller: DESCRIPTOR.name, reason };
    let pairs = options.signers().map_err(|reason| start_error(reason.to_owned()))?;
    if pairs.is_empty() {
        return Ok(Started::No("no certificate and key to sign with are given"));
    }
    let mut authorities = Vec::new();
    for (signer, pair) in pairs {
        let authority = CaProvider::open(pair)
            .map_err(|error| start_error(format!("{}, {pair:?}: {error}", signer.name())))?;
        authorities.push((signer, authority));
    }
    let requests = context.env.caches.of::<SigningRequest>();
    let signers = authorities.iter().map(|(signer, _)| *signer).collect();
    let builder = super::controller_builder(context, &DESCRIPTOR, &requests);
    let max_duration = options.duration;
    context.run(builder.planned(Signing { requests, signers, authorities, max_duration }));
    Ok(Started::Yes)
}

/// Decides whether a CertificateSigningRequest is signed, fails or stays as it is.
struct Signing {
    requests: Cache<SigningRequest>,
    /// The signers in `authorities`.
    signers: Vec<Signer>,
    /// Signers with a certificate and a key.
    authorities: Vec<(Signer, CaProvider)>,
    /// Maximum validity of an issued certificate.
    max_duration: Duration,
}

impl Signing {
    /// Returns the signer's current authority, with a random serial number for a new certificate.
    fn issuer(&self, signer: Signer) -> Option<Issuer> {
        let (_, authority) = self.authorities.iter().find(|(other, _)| *other == signer)?;
        let mut serial = [0; 16];
        let serial = match SystemRandom::new().fill(&mut serial) {
            Ok(()) => Some(serial),
            Err(_) => None,
        };
        Some(Issuer { authority: authority.current(), serial })
    }
}

impl Planner for Signing {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let request = self.requests.get("", &key.name)?;
        let decision = plan::decide(&request, &self.signers);
        let issuer = match &decision {
            Ok(Decision::Sign { signer, .. }) => self.issuer(*signer),
            _ => None,
        };
        Some(Observed { request, decision, issuer, max_duration: self.max_duration })
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }
}

/// A certificate authority whose files may change. Upstream: `caProvider`.
struct CaProvider {
    source: Pair,
    last_valid: Mutex<ParsedAuthority>,
}

/// An authority with the PEM from which it was parsed.
struct ParsedAuthority {
    texts: PemTexts,
    authority: Arc<CertificateAuthority>,
}

impl CaProvider {
    /// Reads the authority's certificate and key from their files.
    fn open(source: &Pair) -> Result<Self, AuthorityError> {
        let texts = read_texts(source)?;
        let authority = Arc::new(CertificateAuthority::new(&texts)?);
        let last_valid = Mutex::new(ParsedAuthority { texts, authority });
        Ok(Self { source: source.clone(), last_valid })
    }

    /// Returns the authority in the current files. If the files cannot be read or do not match, for example between the
    /// writes of certificate and key, returns the last valid authority. Reading the files for each request is cheap,
    /// because the files are small and requests are rare. Upstream: `currentCA`.
    fn current(&self) -> Arc<CertificateAuthority> {
        let texts = match read_texts(&self.source) {
            Ok(texts) => texts,
            Err(error) => return self.keep_last_valid(&error),
        };
        if self.lock().texts == texts {
            return Arc::clone(&self.lock().authority);
        }
        match CertificateAuthority::new(&texts) {
            Ok(authority) => {
                let authority = Arc::new(authority);
                *self.lock() = ParsedAuthority { texts, authority: Arc::clone(&authority) };
                authority
            }
            Err(error) => self.keep_last_valid(&error),
        }
    }

    /// Logs the error, and returns the last valid authority.
    fn keep_last_valid(&self, error: &AuthorityError) -> Arc<CertificateAuthority> {
        tracing::warn!(%error, source = ?self.source, "The authority stays as it was");
        Arc::clone(&self.lock().authority)
    }

    fn lock(&self) -> MutexGuard<'_, ParsedAuthority> {
        self.last_valid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads certificate and key of an authority in PEM.
fn read_texts(source: &Pair) -> Result<PemTexts, AuthorityError> {
    let read = |path: &String| {
        std::fs::read(path).map_err(|error| AuthorityError::File(path.clone(), error))
    };
    match source {
        Pair::Files { certificate, key } => {
            Ok(PemTexts { certificate: read(certificate)?, key: read(key)? })
        }
        Pair::Texts { certificate, key } => {
            Ok(PemTexts { certificate: certificate.as_bytes().into(), key: key.as_bytes().into() })
        }
    }
}
