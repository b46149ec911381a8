//! The server's own certificate authority, its certificate, and the administrator's credentials.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub(super) enum PkiError {
    #[error("{0}")]
    Make(#[from] rcgen::Error),
    #[error("{0}: {1}")]
    File(String, io::Error),
}

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
        let files = Files(folder.map(|f| f.join("pki")));
        let ca_key = key(&files, "ca.key")?;
        let issuer = Issuer::new(ca_params(), ca_key);
        let ca = files.or_make("ca.crt", || Ok(ca_params().self_signed(issuer.key())?.pem()))?;
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
        let token = files.or_make("admin.token", || {
            let bytes: [u8; 24] = rand::random();
            Ok(base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(bytes))
        })?;
        Ok(Self {
            ca,
            ca_key: issuer.key().serialize_pem(),
            serving,
            admin: (admin, admin_key.serialize_pem()),
            token,
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
    Ok(KeyPair::from_pem(&pem)?)
}

/// A folder of files, or none.
struct Files(Option<std::path::PathBuf>);

impl Files {
    /// The text of a file; it is made when it is not there.
    fn or_make(
        &self,
        file: &str,
        make: impl FnOnce() -> Result<String, PkiError>,
    ) -> Result<String, PkiError> {
        let Some(folder) = &self.0 else { return make() };
        let path = folder.join(file);
        let failed = |error: io::Error| PkiError::File(path.display().to_string(), error);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = make()?;
                std::fs::create_dir_all(folder).map_err(failed)?;
                write_private(&path, &text).map_err(failed)?;
                Ok(text)
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}
