//! The authenticated user of a request.

use rustls::pki_types::{CertificateDer, UnixTime};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};
use x509_parser::prelude::{FromDer, X509Certificate};

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const MASTERS: &str = "system:masters";
/// Attribute of a certificate's subject that contains the user's uid.
///
/// Upstream: `X509UID`.
const UID: &str = "1.3.6.1.4.1.57683.2";
/// Key of the credential's id in the extra values.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// An authenticated user.
///
/// Upstream: `user.Info`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Name, such as `system:kube-scheduler`.
    pub name: String,
    /// Unique id. Empty if the authenticator has none.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Extra values from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns the user of requests without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Returns the user of a client certificate: its common name, with its organizations as groups. Returns
    /// `None` without a common name, or with several uids.
    ///
    /// Upstream: `CommonNameUserConversion`.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let subject = parsed.subject();
        // Upstream's parser uses the last of several common names.
        let name = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
        let groups =
            subject.iter_organization().filter_map(|organization| organization.as_str().ok());
        let uids = subject
            .iter_attributes()
            .filter(|attribute| attribute.attr_type().to_id_string() == UID);
        let uids: Vec<&str> = uids.filter_map(|uid| uid.as_str().ok()).collect();
        // Several uids make the user ambiguous.
        let uid = match *uids {
            [] => String::new(),
            [uid] => uid.to_owned(),
            _ => return None,
        };
        let id = format!("X509SHA256={}", hex(sha256(certificate).as_ref()));
        if name.is_empty() {
            return None;
        }
        Some(Self {
            groups: groups.map(str::to_owned).collect(),
            extra: BTreeMap::from([(CREDENTIAL.to_owned(), vec![id])]),
            name,
            uid,
        })
    }

    /// Adds the group `system:authenticated`, unless the user is in `system:unauthenticated`.
    ///
    /// Upstream: `AuthenticatedGroupAdder`.
    #[must_use]
    pub(super) fn with_authenticated_group(mut self) -> Self {
        let has_auth_group = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(has_auth_group) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    pub(super) fn is_in_masters(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    pub(super) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }
}

/// Returns the common name of a certificate's subject, or an empty string.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> String {
    let parsed = X509Certificate::from_der(certificate).ok().map(|(_, parsed)| parsed);
    let name = parsed.as_ref().and_then(|parsed| parsed.subject().iter_common_name().last());
    name.and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned()
}

/// Returns the remaining validity of a certificate, or zero if it has expired.
pub(super) fn remaining_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Duration {
    let parsed = X509Certificate::from_der(certificate).ok().map(|(_, parsed)| parsed);
    let end = parsed.map_or(0, |parsed| parsed.validity().not_after.timestamp());
    Duration::from_secs(u64::try_from(end).unwrap_or_default().saturating_sub(now.as_secs()))
}

fn sha256(bytes: &[u8]) -> ring::digest::Digest {
    ring::digest::digest(&ring::digest::SHA256, bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
