//! Serving certificate with its private key.

use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Serving certificate with its private key.
pub struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Error of a serving certificate or of its settings.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or has no valid PEM section of the expected type.
    #[error("cannot read {what} from {path}", path = path.display())]
    Read {
        /// Expected content of the file, such as a certificate.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A self-signed certificate could not be created.
    #[error("cannot make a self-signed certificate")]
    Make(#[source] rcgen::Error),
    /// A self-signed certificate could not be stored.
    #[error("cannot keep the self-signed certificate in {path}", path = path.display())]
    Keep {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        #[source]
        source: std::io::Error,
    },
    /// Certificate and key do not match, or rustls refuses them.
    #[error("certificate and key cannot be used")]
    Use(#[source] rustls::Error),
    /// The CA of clients cannot be used.
    #[error("the clients' CA cannot be used")]
    ClientCa(#[source] rustls::server::VerifierBuilderError),
    /// The file is not PEM.
    #[error("not PEM: {0}")]
    Pem(String),
    /// None of the key exchange groups is supported.
    #[error("none of the key exchange groups {0:?} is supported")]
    Groups(Vec<u16>),
}

impl Clone for Certificate {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl Certificate {
    /// Reads PEM files.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = pem_chain(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Read {
            what: "a private key",
            path: key.to_owned(),
            source: source.into(),
        })?;
        Ok(Self { chain, key })
    }

    /// Returns the certificate chain and the key, to detect changes.
    pub(super) fn bytes(&self) -> Vec<Vec<u8>> {
        let chain = self.chain.iter().map(|certificate| certificate.to_vec());
        chain.chain([self.key.secret_der().to_vec()]).collect()
    }

    /// Returns the certificate without its intermediates.
    pub(super) fn leaf(&self) -> Option<&[u8]> {
        self.chain.first().map(AsRef::as_ref)
    }

    /// Returns the certificate ready to sign, if certificate and key match.
    pub(super) fn certified(
        &self,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, TlsError> {
        CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), provider)
            .map(Arc::new)
            .map_err(TlsError::Use)
    }

    /// Returns a self-signed certificate for these host names. `storage` is a folder and a file name: with it, the
    /// certificate is read from `NAME.crt` and `NAME.key` in the folder, or stored there if they do not exist.
    pub fn self_signed(names: &[String], storage: Option<(&Path, &str)>) -> Result<Self, TlsError> {
        let files = storage.map(|(folder, name)| {
            (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")))
        });
        if let Some((certificate, key)) = &files
            && certificate.exists()
            && key.exists()
        {
            return Self::from_files(certificate, key);
        }
        let generated = rcgen::generate_simple_self_signed(names).map_err(TlsError::Make)?;
        if let Some((certificate, key)) = &files {
            write_file(certificate, &generated.cert.pem(), 0o644)?;
            write_file(key, &generated.signing_key.serialize_pem(), 0o600)?;
        }
        let key = PrivatePkcs8KeyDer::from(generated.signing_key.serialize_der());
        Ok(Self { chain: vec![generated.cert.der().clone()], key: key.into() })
    }
}

fn pem_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::Read {
        what: "certificates",
        path: path.to_owned(),
        source,
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(|error| failed(error.into()))?
        .collect::<Result<_, _>>()
        .map_err(|error| failed(error.into()))?;
    if chain.is_empty() { Err(failed("it has none".into())) } else { Ok(chain) }
}

fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let failed = |source| TlsError::Keep { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(failed)?;
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)
        .map_err(failed)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_self_signed_certificate_is_kept_and_used_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = ["localhost".to_owned()];
        let first =
            Certificate::self_signed(&names, Some((folder.path(), "program"))).expect("made");
        let second =
            Certificate::self_signed(&names, Some((folder.path(), "program"))).expect("read");
        assert_eq!(first.chain, second.chain);
        assert!(second.certified(&rustls::crypto::ring::default_provider()).is_ok());
    }

    #[test]
    fn a_missing_file_is_named() {
        let error =
            Certificate::from_files(Path::new("/nowhere/a.crt"), Path::new("/nowhere/a.key"))
                .err()
                .expect("refused");
        assert!(error.to_string().contains("/nowhere/a.crt"), "{error}");
    }
}
