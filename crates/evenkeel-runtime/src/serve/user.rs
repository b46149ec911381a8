//! Who asks.

use rustls::pki_types::{CertificateDer, UnixTime};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};
use x509_parser::prelude::{FromDer, X509Certificate};

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const MASTERS: &str = "system:masters";
/// Attribute of a certificate's subject with the user's uid; upstream's `asn1.X509UID`.
const UID: &str = "1.3.6.1.4.1.57683.2";
/// What the credential was, among the extras.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// Authenticated user of a request (upstream's `user.Info`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Name of the user.
    pub name: String,
    /// Identity beyond the name; empty where there is none.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// What else the authenticator said.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody who said nothing of who they are.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// The user of a client certificate: its common name, and its organizations as groups. None without a common name.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let subject = parsed.subject();
        // Upstream's parser keeps the last of several.
        let name = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
        let groups = subject.iter_organization().filter_map(|o| o.as_str().ok());
        let uids = subject.iter_attributes().filter(|a| a.attr_type().to_id_string() == UID);
        let uids: Vec<&str> = uids.filter_map(|uid| uid.as_str().ok()).collect();
        // Several mean that somebody is mistaken about who this is.
        let uid = match *uids {
            [] => String::new(),
            [uid] => uid.to_owned(),
            _ => return None,
        };
        let id = format!("X509SHA256={}", hex(ring_digest(certificate).as_ref()));
        (!name.is_empty()).then(|| Self {
            groups: groups.map(str::to_owned).collect(),
            extra: BTreeMap::from([(CREDENTIAL.to_owned(), vec![id])]),
            name,
            uid,
        })
    }

    /// The same, as a member of those who have said who they are; unless it was said that they have not.
    #[must_use]
    pub(super) fn authenticated(mut self) -> Self {
        let told = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(told) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    pub(super) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    pub(super) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }
}

/// Common name of a certificate's subject; empty where there is none.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> String {
    let parsed = X509Certificate::from_der(certificate).ok().map(|(_, parsed)| parsed);
    let name = parsed.as_ref().and_then(|parsed| parsed.subject().iter_common_name().last());
    name.and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned()
}

/// How long a certificate still holds at this time; zero when it does not.
pub(super) fn left(certificate: &CertificateDer<'_>, now: UnixTime) -> Duration {
    let parsed = X509Certificate::from_der(certificate).ok().map(|(_, parsed)| parsed);
    let end = parsed.map_or(0, |parsed| parsed.validity().not_after.timestamp());
    Duration::from_secs(u64::try_from(end).unwrap_or_default().saturating_sub(now.as_secs()))
}

fn ring_digest(bytes: &[u8]) -> ring::digest::Digest {
    ring::digest::digest(&ring::digest::SHA256, bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
