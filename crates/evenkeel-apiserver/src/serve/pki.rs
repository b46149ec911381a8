//! Certificate authority and certificates of the server, and the administrator's credentials.

use std::io;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use evenkeel_tasks::watch;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::files;

/// Error of creating or reading certificates.
#[derive(Debug, thiserror::Error)]
pub(super) enum PkiError {
    /// A key or certificate cannot be created.
    #[error("{0}")]
    Create(#[from] rcgen::Error),
    /// A file, of this path, cannot be read or written.
    #[error("{0}: {1}")]
    File(String, io::Error),
    /// A file exists, but its contents cannot be used.
    #[error(
        "{path} cannot be used: {why}; restore it from a copy, or remove {folder} so that all keys and certificates are created again"
    )]
    Damaged { path: String, folder: String, why: String },
}

/// Folder of keys and certificates in the data folder.
pub(super) const FOLDER: &str = "pki";

/// Minimum length of the administrator's token: 24 bytes in base64.
const TOKEN_LENGTH: usize = 32;

/// Lifetime of the CA's certificate (10 years).
const CA_LIFETIME: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// Lifetime of the server's and the administrator's certificates (1 year).
const CERTIFICATE_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Time between a certificate's `notBefore` and its creation, for clients whose clocks are slow.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// Keys and certificates, with the administrator's token.
pub(super) struct Pki {
    files: Files,
    issuer: Issuer<'static, KeyPair>,
    /// Certificate of the CA in PEM.
    ca: String,
    /// Key of the CA in PEM.
    ca_key: String,
    /// Roots of client certificates in PEM: the CA and the configured ones.
    client_roots: String,
    /// Names in the listener's certificate.
    names: Vec<String>,
    serving_key: KeyPair,
    admin_key: KeyPair,
    /// Configured certificate of the listener. Without it, the CA signs the listener's certificate.
    configured_certificate: Option<CertificateWithKey>,
    /// The administrator's bearer token.
    token: String,
    /// Key in PEM that signs service account tokens.
    service_account_key: String,
    current: RwLock<Certificates>,
    /// Number of renewals since the start.
    renewals: watch::Sender<u64>,
}

/// Certificate chain with its key, both in PEM.
#[derive(Clone)]
pub(super) struct CertificateWithKey {
    pub(super) chain: String,
    pub(super) key: String,
}

/// Renewable certificates in PEM.
#[derive(Clone)]
struct Certificates {
    /// Certificate chain of the listener.
    serving: String,
    /// Client certificate of the administrator.
    admin: String,
    /// Time of the next renewal.
    next_renewal: Timestamp,
}

/// Options of certificates.
#[derive(Default)]
pub(super) struct PkiOptions {
    /// Further host names or addresses of the server.
    pub(super) names: Vec<String>,
    /// Certificate of the listener.
    pub(super) configured_certificate: Option<CertificateWithKey>,
    /// Further roots of client certificates in PEM.
    pub(super) client_ca: Option<String>,
}

impl Pki {
    /// Reads keys and certificates from `folder/pki`, and creates missing ones there, or in memory without a folder.
    /// Renews certificates that are due, with the same key.
    pub(super) fn open(
        folder: Option<&Path>,
        options: PkiOptions,
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let files = Files(folder.map(|data_folder| data_folder.join(FOLDER)));
        files.create_folder()?;
        let ca_key = load_or_generate_key(&files, "ca.key")?;
        let issuer = Issuer::new(ca_params(now), ca_key);
        let create_ca = || Ok(ca_params(now).self_signed(issuer.key())?.pem());
        let mut ca = files.read_or_create("ca.crt", create_ca)?;
        let validity = files.check_certificate("ca.crt", &ca, issuer.key())?;
        // No certificate may outlive its CA.
        if validity.until < now + CERTIFICATE_LIFETIME {
            ca = create_ca()?;
            files.write("ca.crt", &ca)?;
        }
        let client_roots =
            options.client_ca.map_or_else(|| ca.clone(), |client_ca| format!("{ca}{client_ca}"));
        let mut names: Vec<String> = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ]
        .map(Into::into)
        .into();
        names.extend(options.names);
        let token = files.read_or_create("admin.token", || {
            let bytes: [u8; 24] = rand::random();
            Ok(base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(bytes))
        })?;
        if token.trim().len() < TOKEN_LENGTH {
            return Err(files.damaged("admin.token", "it is shorter than a token"));
        }
        let placeholder =
            Certificates { serving: String::new(), admin: String::new(), next_renewal: now };
        let pki = Self {
            ca,
            ca_key: issuer.key().serialize_pem(),
            client_roots,
            names,
            serving_key: load_or_generate_key(&files, "apiserver.key")?,
            admin_key: load_or_generate_key(&files, "admin.key")?,
            configured_certificate: options.configured_certificate,
            token: token.trim().to_owned(),
            service_account_key: load_or_generate_key(&files, "service-accounts.key")?
                .serialize_pem(),
            current: RwLock::new(placeholder),
            renewals: watch::Sender::new(0),
            files,
            issuer,
        };
        let admin = pki.files.read_or_create("admin.crt", || pki.admin_certificate(now))?;
        let validity = pki.files.check_certificate("admin.crt", &admin, &pki.admin_key)?;
        if validity.is_fresh(now) {
            pki.set_certificates(admin, validity.renewal_time(), now)?;
        } else {
            pki.renew(now)?;
        }
        Ok(pki)
    }

    /// Renews the certificates if they are due. Returns the time of the next renewal.
    pub(super) fn renew_if_due(&self, now: Timestamp) -> Result<Timestamp, PkiError> {
        if now >= self.current().next_renewal {
            self.renew(now)?;
            self.renewals.send_modify(|count| *count += 1);
        }
        Ok(self.current().next_renewal)
    }

    /// Returns a counter of renewals. After each renewal, callers have to write kubeconfigs again.
    pub(super) fn renewals(&self) -> watch::Receiver<u64> {
        self.renewals.subscribe()
    }

    /// Issues new certificates.
    fn renew(&self, now: Timestamp) -> Result<(), PkiError> {
        let admin = self.admin_certificate(now)?;
        self.files.write("admin.crt", &admin)?;
        let validity = Validity::new(now, CERTIFICATE_LIFETIME);
        self.set_certificates(admin, validity.renewal_time(), now)
    }

    /// Sets the administrator's certificate, and issues a new one for the listener.
    fn set_certificates(
        &self,
        admin: String,
        next_renewal: Timestamp,
        now: Timestamp,
    ) -> Result<(), PkiError> {
        let serving = match &self.configured_certificate {
            Some(configured) => configured.chain.clone(),
            None => self.serving_certificate(now)?,
        };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) =
            Certificates { serving, admin, next_renewal };
        Ok(())
    }

    fn current(&self) -> Certificates {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn serving_certificate(&self, now: Timestamp) -> Result<String, PkiError> {
        let mut params = CertificateParams::new(self.names.clone())?;
        set_subject(&mut params, "kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        Validity::new(now, CERTIFICATE_LIFETIME).apply_to(&mut params);
        Ok(params.signed_by(&self.serving_key, &self.issuer)?.pem())
    }

    fn admin_certificate(&self, now: Timestamp) -> Result<String, PkiError> {
        let mut params = CertificateParams::new(Vec::new())?;
        set_subject(&mut params, "kubernetes-admin", Some("system:masters"));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Validity::new(now, CERTIFICATE_LIFETIME).apply_to(&mut params);
        Ok(params.signed_by(&self.admin_key, &self.issuer)?.pem())
    }

    pub(super) fn ca_pem(&self) -> &str {
        &self.ca
    }

    /// Returns the roots of client certificates in PEM.
    pub(super) fn client_roots_pem(&self) -> &str {
        &self.client_roots
    }

    /// Returns the CA's key in PEM.
    pub(super) fn ca_key_pem(&self) -> &str {
        &self.ca_key
    }

    /// Returns the key in PEM that signs service account tokens.
    pub(super) fn account_key(&self) -> &str {
        &self.service_account_key
    }

    pub(super) fn admin_token(&self) -> &str {
        &self.token
    }

    /// Returns the listener's current certificate.
    pub(super) fn listener_certificate(&self) -> CertificateWithKey {
        let key = match &self.configured_certificate {
            Some(configured) => configured.key.clone(),
            None => self.serving_key.serialize_pem(),
        };
        CertificateWithKey { chain: self.current().serving, key }
    }

    /// Returns a kubeconfig for the administrator.
    pub(super) fn kubeconfig(&self, url: &str) -> String {
        let b64 = |text: &str| BASE64_STANDARD.encode(text);
        // The CA of a configured certificate is unknown.
        let server_verification = if self.configured_certificate.is_none() {
            format!("certificate-authority-data: {}", b64(&self.ca))
        } else {
            "insecure-skip-tls-verify: true".to_owned()
        };
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: evenkeel\nclusters:\n- name: evenkeel\n  cluster:\n    server: {url}\n    {server_verification}\nusers:\n- name: evenkeel-admin\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\ncontexts:\n- name: evenkeel\n  context:\n    cluster: evenkeel\n    user: evenkeel-admin\n",
            b64(&self.current().admin),
            b64(&self.admin_key.serialize_pem()),
        )
    }
}

/// Period of a certificate's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Validity {
    from: Timestamp,
    until: Timestamp,
}

impl Validity {
    /// Returns the validity of a certificate that is issued at `now`.
    fn new(now: Timestamp, lifetime: SignedDuration) -> Self {
        Self { from: now - BACKDATE, until: now + lifetime }
    }

    /// Returns the time of renewal: after two thirds of the validity.
    fn renewal_time(self) -> Timestamp {
        self.from + self.until.duration_since(self.from) * 2 / 3
    }

    /// Returns whether a stored certificate needs no renewal. Certificates of earlier versions of this program have a
    /// validity that is too long.
    fn is_fresh(self, now: Timestamp) -> bool {
        let lifetime = self.until.duration_since(self.from);
        self.from <= now && now < self.renewal_time() && lifetime <= CERTIFICATE_LIFETIME + BACKDATE
    }

    /// Sets the validity of a certificate to issue.
    fn apply_to(self, params: &mut CertificateParams) {
        let time = |at: Timestamp| {
            let seconds = u64::try_from(at.as_second()).unwrap_or_default();
            rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
        };
        params.not_before = time(self.from);
        params.not_after = time(self.until);
    }
}

fn ca_params(now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    Validity::new(now, CA_LIFETIME).apply_to(&mut params);
    set_subject(&mut params, "evenkeel-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn set_subject(params: &mut CertificateParams, common_name: &str, organization: Option<&str>) {
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
}

/// Reads a key from a file, or generates it if the file does not exist.
fn load_or_generate_key(files: &Files, file: &str) -> Result<KeyPair, PkiError> {
    if files.0.is_none() {
        return Ok(KeyPair::generate()?);
    }
    let pem = files.read_or_create(file, || Ok(KeyPair::generate()?.serialize_pem()))?;
    KeyPair::from_pem(&pem).map_err(|error| files.damaged(file, error))
}

/// Folder of the files. With `None`, nothing is read or written.
struct Files(Option<std::path::PathBuf>);

impl Files {
    fn create_folder(&self) -> Result<(), PkiError> {
        let Some(folder) = &self.0 else { return Ok(()) };
        files::make_folder(folder, |_| true)
            .map_err(|error| PkiError::File(folder.display().to_string(), error))
    }

    /// Writes or replaces a file.
    fn write(&self, file: &str, text: &str) -> Result<(), PkiError> {
        let Some(folder) = &self.0 else { return Ok(()) };
        let path = folder.join(file);
        files::write(&path, text).map_err(|error| PkiError::File(path.display().to_string(), error))
    }

    /// Reads a file, or creates it if it does not exist.
    fn read_or_create(
        &self,
        file: &str,
        create: impl FnOnce() -> Result<String, PkiError>,
    ) -> Result<String, PkiError> {
        let Some(folder) = &self.0 else { return create() };
        let path = folder.join(file);
        let failed = |error: io::Error| PkiError::File(path.display().to_string(), error);
        match files::read(&path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = create()?;
                files::write(&path, &text).map_err(failed)?;
                Ok(text)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the validity of a certificate. Fails if the certificate cannot be parsed or does not belong to `key`.
    fn check_certificate(
        &self,
        file: &str,
        pem: &str,
        key: &KeyPair,
    ) -> Result<Validity, PkiError> {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| self.damaged(file, error))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|error| self.damaged(file, error))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(self.damaged(file, "it is not the certificate of the key beside it"));
        }
        let time = |seconds: i64| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        let validity = parsed.validity();
        Ok(Validity {
            from: time(validity.not_before.timestamp()),
            until: time(validity.not_after.timestamp()),
        })
    }

    /// Returns the error for a file that exists but cannot be used.
    fn damaged(&self, file: &str, why: impl std::fmt::Display) -> PkiError {
        let folder = self.0.clone().unwrap_or_default();
        PkiError::Damaged {
            path: folder.join(file).display().to_string(),
            folder: folder.display().to_string(),
            why: why.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    /// Returns the expiry of the current certificates of CA, listener and administrator.
    fn ends(pki: &Pki) -> [String; 3] {
        let current = pki.current();
        [
            (&pki.ca, pki.issuer.key()),
            (&current.serving, &pki.serving_key),
            (&current.admin, &pki.admin_key),
        ]
        .map(|(pem, key)| {
            let validity = pki.files.check_certificate("a", pem, key).expect("a certificate");
            validity.until.to_string()
        })
    }

    fn open(folder: &Path, now: &str) -> Pki {
        Pki::open(Some(folder), PkiOptions::default(), at(now)).expect("opened")
    }

    #[test]
    fn certificates_live_a_year_and_are_renewed_with_their_keys() {
        let home = tempfile::tempdir().expect("a folder");
        let pki = open(home.path(), "2026-01-01T00:00:00Z");
        let first = ["2035-12-30T00:00:00Z", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"];
        assert_eq!(ends(&pki), first);
        let kubeconfig = pki.kubeconfig("https://a");
        // Renewal is after two thirds of the year and of the five minutes before it.
        for (now, n_renewals) in [
            ("2026-01-01T00:00:00Z", 0),
            ("2026-09-01T07:58:19Z", 0),
            ("2026-09-01T08:00:00Z", 1),
            ("2026-09-01T08:00:01Z", 1),
        ] {
            pki.renew_if_due(at(now)).expect("renewed");
            assert_eq!(*pki.renewals().borrow(), n_renewals, "{now}");
        }
        assert_eq!(ends(&pki)[1..], ["2027-09-01T08:00:00Z", "2027-09-01T08:00:00Z"]);
        assert_ne!(pki.kubeconfig("https://a"), kubeconfig);
        // The next start finds the renewed certificates.
        let kubeconfig = pki.kubeconfig("https://a");
        assert_eq!(open(home.path(), "2026-10-01T00:00:00Z").kubeconfig("https://a"), kubeconfig);
        let late = open(home.path(), "2030-01-01T00:00:00Z");
        assert_eq!(ends(&late), [first[0], "2031-01-01T00:00:00Z", "2031-01-01T00:00:00Z"]);
    }

    #[test]
    fn the_authority_is_renewed_before_a_certificate_would_outlive_it() {
        let home = tempfile::tempdir().expect("a folder");
        let (ca, key) = {
            let pki = open(home.path(), "2026-01-01T00:00:00Z");
            (pki.ca.clone(), pki.ca_key.clone())
        };
        let pki = open(home.path(), "2034-12-29T00:00:00Z");
        assert_eq!((&pki.ca, &pki.ca_key), (&ca, &key));
        let pki = open(home.path(), "2035-01-01T00:00:00Z");
        assert_ne!(pki.ca, ca);
        assert_eq!(pki.ca_key, key);
        assert_eq!(ends(&pki)[0], "2044-12-29T00:00:00Z");
    }

    #[test]
    fn a_certificate_of_an_earlier_version_is_replaced() {
        let home = tempfile::tempdir().expect("a folder");
        {
            let pki = open(home.path(), "2026-01-01T00:00:00Z");
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.not_after = rcgen::date_time_ymd(4096, 1, 1);
            let forever = params.signed_by(&pki.admin_key, &pki.issuer).expect("signed").pem();
            pki.files.write("admin.crt", &forever).expect("written");
        }
        let pki = open(home.path(), "2026-01-02T00:00:00Z");
        assert_eq!(ends(&pki)[2], "2027-01-02T00:00:00Z");
    }
}
