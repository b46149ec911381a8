//! The server's own certificate authority, its certificate, and the administrator's credentials.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::files;

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub(super) enum PkiError {
    #[error("{0}")]
    Make(#[from] rcgen::Error),
    #[error("{0}: {1}")]
    File(String, io::Error),
    #[error(
        "{path} cannot be used: {why}; restore it from a copy, or remove {folder} to have all keys and certificates made anew"
    )]
    Damaged { path: String, folder: String, why: String },
}

/// The folder of keys and certificates in the data folder.
pub(super) const FOLDER: &str = "pki";

/// Length of the administrator's token: 24 bytes in base64.
const TOKEN_LENGTH: usize = 32;

/// Keys, certificates and the administrator's token.
pub(super) struct Pki {
    ca: String,
    ca_key: String,
    /// Chain and key of the listener, PEM.
    serving: (String, String),
    admin: (String, String),
    token: String,
    /// Signs tokens of service accounts.
    accounts: KeyPair,
    /// Whether the listener's certificate is by the server's own authority.
    own: bool,
}

impl Pki {
    /// Reads them from `folder/pki`, or makes them (and keeps them there, when there is a folder).
    pub(super) fn open(
        folder: Option<&Path>,
        names: Vec<String>,
        given: Option<(String, String)>,
    ) -> Result<Self, PkiError> {
        let files = Files(folder.map(|f| f.join(FOLDER)));
        files.make_folder()?;
        let ca_key = key(&files, "ca.key")?;
        let issuer = Issuer::new(ca_params(), ca_key);
        let ca = files.or_make("ca.crt", || Ok(ca_params().self_signed(issuer.key())?.pem()))?;
        files.check_certificate("ca.crt", &ca, issuer.key())?;
        let mut all = vec![
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
            "10.96.0.1".to_owned(),
        ];
        all.extend(
            [
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
            ]
            .map(Into::into),
        );
        all.extend(names);
        let own = given.is_none();
        let serving = match given {
            Some(given) => given,
            None => {
                let key = key(&files, "apiserver.key")?;
                let mut params = CertificateParams::new(all)?;
                name(&mut params, "kube-apiserver", None);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                (params.signed_by(&key, &issuer)?.pem(), key.serialize_pem())
            }
        };
        let admin_key = key(&files, "admin.key")?;
        let admin = files.or_make("admin.crt", || {
            let mut params = CertificateParams::new(Vec::new())?;
            name(&mut params, "kubernetes-admin", Some("system:masters"));
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            Ok(params.signed_by(&admin_key, &issuer)?.pem())
        })?;
        files.check_certificate("admin.crt", &admin, &admin_key)?;
        let token = files.or_make("admin.token", || {
            let bytes: [u8; 24] = rand::random();
            Ok(base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(bytes))
        })?;
        if token.trim().len() < TOKEN_LENGTH {
            return Err(files.damaged("admin.token", "it is shorter than a token"));
        }
        Ok(Self {
            ca,
            ca_key: issuer.key().serialize_pem(),
            serving,
            admin: (admin, admin_key.serialize_pem()),
            token: token.trim().to_owned(),
            accounts: key(&files, "service-accounts.key")?,
            own,
        })
    }

    pub(super) fn ca_pem(&self) -> &str {
        &self.ca
    }

    /// The authority's key, PEM.
    pub(super) fn ca_key_pem(&self) -> &str {
        &self.ca_key
    }

    /// The key for tokens of service accounts, PKCS#8.
    pub(super) fn account_key(&self) -> &[u8] {
        self.accounts.serialized_der()
    }

    pub(super) fn admin_token(&self) -> &str {
        &self.token
    }

    /// Chain and key of the listener, PEM.
    pub(super) fn serving(&self) -> (&str, &str) {
        (&self.serving.0, &self.serving.1)
    }

    pub(super) fn kubeconfig(&self, url: &str) -> String {
        let b64 = |text: &str| BASE64_STANDARD.encode(text);
        let trust = if self.own {
            format!("certificate-authority-data: {}", b64(&self.ca))
        } else {
            "insecure-skip-tls-verify: true".to_owned()
        };
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: evenkeel\nclusters:\n- name: evenkeel\n  cluster:\n    server: {url}\n    {trust}\nusers:\n- name: evenkeel-admin\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\ncontexts:\n- name: evenkeel\n  context:\n    cluster: evenkeel\n    user: evenkeel-admin\n",
            b64(&self.admin.0),
            b64(&self.admin.1),
        )
    }
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    name(&mut params, "evenkeel-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn name(params: &mut CertificateParams, common: &str, organization: Option<&str>) {
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, common);
}

fn key(files: &Files, file: &str) -> Result<KeyPair, PkiError> {
    let pem = files.or_make(file, || Ok(KeyPair::generate()?.serialize_pem()))?;
    KeyPair::from_pem(&pem).map_err(|error| files.damaged(file, error))
}

/// A folder of files, or none.
struct Files(Option<std::path::PathBuf>);

impl Files {
    fn make_folder(&self) -> Result<(), PkiError> {
        let Some(folder) = &self.0 else { return Ok(()) };
        files::make_folder(folder, |_| true)
            .map_err(|error| PkiError::File(folder.display().to_string(), error))
    }

    /// The text of a file; it is made when it is not there.
    fn or_make(
        &self,
        file: &str,
        make: impl FnOnce() -> Result<String, PkiError>,
    ) -> Result<String, PkiError> {
        let Some(folder) = &self.0 else { return make() };
        let path = folder.join(file);
        let failed = |error: io::Error| PkiError::File(path.display().to_string(), error);
        match files::read(&path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = make()?;
                files::write(&path, &text).map_err(failed)?;
                Ok(text)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Refuses a certificate that cannot be read, or that is another key's.
    fn check_certificate(&self, file: &str, pem: &str, key: &KeyPair) -> Result<(), PkiError> {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| self.damaged(file, error))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|error| self.damaged(file, error))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(self.damaged(file, "it is not the certificate of the key beside it"));
        }
        Ok(())
    }

    /// What to say of a file that is there and cannot be used.
    fn damaged(&self, file: &str, why: impl std::fmt::Display) -> PkiError {
        let folder = self.0.clone().unwrap_or_default();
        PkiError::Damaged {
            path: folder.join(file).display().to_string(),
            folder: folder.display().to_string(),
            why: why.to_string(),
        }
    }
}
