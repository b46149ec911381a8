//! Trusted root CAs of a client: the kubeconfig's, the pod's CA file, or the system's.

use evenkeel_x509::CertPool;
use kube::Config;
use rustls::{
    DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Returns the verifier of server certificates for a configuration.
pub(super) fn verifier(config: &Config) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    if let Some(path) = &config.root_cert_file {
        return Ok(Arc::new(FileVerifier::new(path)?));
    }
    let Some(roots) = &config.root_cert else { return Ok(verifier_for(CertPool::system())) };
    let mut pool = CertPool::empty();
    for der in roots {
        pool.add(CertificateDer::from_slice(der))?;
    }
    Ok(verifier_for(pool))
}

fn verifier_for(pool: CertPool) -> Arc<dyn ServerCertVerifier> {
    pool.server_verifier(Arc::new(rustls::crypto::ring::default_provider()))
}

/// Verifies servers with a CA file. It reads the file again for each connection, because a pod's CA may be
/// rotated.
#[derive(Debug)]
struct FileVerifier {
    path: PathBuf,
    last_valid: Mutex<ReadRoots>,
}

/// Content of a CA file, and its verifier.
#[derive(Debug)]
struct ReadRoots {
    pem: Vec<u8>,
    verifier: Arc<dyn ServerCertVerifier>,
}

impl FileVerifier {
    fn new(path: &Path) -> Result<Self, Error> {
        let pem = read_file(path)?;
        let verifier = verifier_from_pem(&pem)?;
        let last_valid = Mutex::new(ReadRoots { pem, verifier });
        Ok(Self { path: path.to_owned(), last_valid })
    }

    /// Returns the verifier of the last read, for signatures of handshakes, which do not depend on the CAs.
    fn last(&self) -> Arc<dyn ServerCertVerifier> {
        self.last_valid.lock().unwrap_or_else(PoisonError::into_inner).verifier.clone()
    }

    /// Reads the file again and returns its verifier, or the last one if the file is invalid.
    fn current(&self) -> Arc<dyn ServerCertVerifier> {
        let mut last = self.last_valid.lock().unwrap_or_else(PoisonError::into_inner);
        match read_file(&self.path) {
            Ok(pem) if pem == last.pem => {}
            Ok(pem) => match verifier_from_pem(&pem) {
                Ok(verifier) => *last = ReadRoots { pem, verifier },
                Err(error) => self.log_invalid_file(&error),
            },
            Err(error) => self.log_invalid_file(&error),
        }
        last.verifier.clone()
    }

    fn log_invalid_file(&self, error: &Error) {
        let path = self.path.display();
        tracing::warn!(%path, %error, "The changed CA file cannot be used; the last CAs stay in use");
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::General(format!("{}: {error}", path.display())))
}

fn verifier_from_pem(pem: &[u8]) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    match CertPool::from_pem(pem) {
        Ok(pool) if pool.is_empty() => Err(Error::General("there is no certificate".to_owned())),
        Ok(pool) => Ok(verifier_for(pool)),
        Err(error) => Err(Error::General(error.to_string())),
    }
}

impl ServerCertVerifier for FileVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.current().verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.last().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.last().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.last().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use std::time::Duration;

    /// Returns a self-signed certificate for `localhost`.
    fn self_signed() -> rcgen::Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&key).unwrap()
    }

    /// Returns whether the verifier accepts a server certificate for `localhost`.
    fn trusts(verifier: &dyn ServerCertVerifier, certificate: &rcgen::Certificate) -> bool {
        let name = ServerName::try_from("localhost").unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        verifier.verify_server_cert(certificate.der(), &[], &name, &[], now).is_ok()
    }

    #[test]
    fn a_changed_ca_file_applies_to_the_next_connection_and_an_invalid_one_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let (old, new) = (self_signed(), self_signed());
        fs::write(&path, old.pem()).unwrap();
        let mut config = Config::new("https://localhost".parse().unwrap());
        config.root_cert_file = Some(path.clone());
        let verifier = verifier(&config).unwrap();
        assert!(trusts(&*verifier, &old) && !trusts(&*verifier, &new));
        fs::write(&path, "half written").unwrap();
        assert!(trusts(&*verifier, &old));
        fs::write(&path, new.pem()).unwrap();
        assert!(trusts(&*verifier, &new) && !trusts(&*verifier, &old));
        fs::remove_file(&path).unwrap();
        assert!(trusts(&*verifier, &new));
    }

    #[test]
    fn the_roots_of_the_configuration_replace_those_of_the_system() {
        let (own, other) = (self_signed(), self_signed());
        let mut config = Config::new("https://localhost".parse().unwrap());
        config.root_cert = Some(vec![own.der().to_vec()]);
        let verifier = verifier(&config).unwrap();
        assert!(trusts(&*verifier, &own) && !trusts(&*verifier, &other));
        config.root_cert = Some(Vec::new());
        assert!(!trusts(&*super::verifier(&config).unwrap(), &own), "an empty list is nobody");
    }
}
