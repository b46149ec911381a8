//! Choice of a certificate by server name. Exact names precede patterns, names from flags precede the certificates'
//! own, and earlier certificates precede later ones.

use super::{Certificate, TlsError};
use rustls::{
    crypto::CryptoProvider,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{collections::HashMap, net::IpAddr, sync::Arc};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Certificates by server name.
#[derive(Debug)]
pub(super) struct ByName {
    by_name: HashMap<String, Arc<CertifiedKey>>,
    default: Arc<CertifiedKey>,
}

impl ByName {
    /// Creates the table from certificates with their explicit names. Without explicit names, a certificate is used
    /// for its own names. `default` is for clients that send no server name, or one that no certificate has.
    pub(super) fn new(
        default: &Certificate,
        pairs: &[(Certificate, &[String])],
        provider: &CryptoProvider,
    ) -> Result<Self, TlsError> {
        let (mut by_name, mut explicit) = (HashMap::new(), HashMap::new());
        // Iterate backwards, so that earlier certificates overwrite later ones.
        for (certificate, names) in pairs.iter().rev() {
            let key = certificate.certified(provider)?;
            explicit.extend(names.iter().map(|name| (name.to_lowercase(), key.clone())));
            if names.is_empty() {
                let names = certificate.leaf().map(names_of).unwrap_or_default();
                by_name.extend(names.into_iter().map(|name| (name.to_lowercase(), key.clone())));
            }
        }
        // Explicit names replace the certificates' own names.
        by_name.extend(explicit);
        Ok(Self { by_name, default: default.certified(provider)? })
    }

    /// Returns the certificates for clients that send no server name, by the local address.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (IpAddr, Arc<CertifiedKey>)> + '_ {
        self.by_name.iter().filter_map(|(name, key)| Some((name.parse().ok()?, key.clone())))
    }

    fn find(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.to_lowercase();
        if let Some(exact) = self.by_name.get(&name) {
            return exact;
        }
        let pattern = name.split_once('.').map(|(_, domain)| format!("*.{domain}"));
        pattern.and_then(|pattern| self.by_name.get(&pattern)).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or(&self.default, |name| self.find(name)).clone())
    }
}

/// Resolver that always returns the same certificate.
#[derive(Debug)]
pub(super) struct SingleCertificate(pub(super) Arc<CertifiedKey>);

impl ResolvesServerCert for SingleCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Returns the names of a certificate: its DNS names, and its common name if that is a domain name.
fn names_of(certificate: &[u8]) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()).last();
    let common = common.filter(|name| name.parse::<IpAddr>().is_err() && is_domain(name));
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    let alternatives = alternatives.into_iter().flat_map(|names| &names.value.general_names);
    let dns = alternatives.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    common.into_iter().chain(dns).map(str::to_owned).collect()
}

fn is_domain(name: &str) -> bool {
    let label = |label: &str| {
        let has_only_label_characters =
            label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        has_only_label_characters
            && !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name == "*" || name.strip_prefix("*.").unwrap_or(name).split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate_for(names: &[&str]) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Certificate::self_signed(&names, None).unwrap()
    }

    #[test]
    fn server_name_selects_the_certificate() {
        let provider = rustls::crypto::ring::default_provider();
        let (own, first, second, third) = (
            certificate_for(&["own"]),
            certificate_for(&["a.example", "*.example"]),
            certificate_for(&["a.example", "b.other", "b.example"]),
            certificate_for(&["c"]),
        );
        let explicit = ["b.other".to_owned(), "X.example".to_owned(), "10.0.0.1".to_owned()];
        let pairs =
            [(first.clone(), &[][..]), (second.clone(), &[][..]), (third.clone(), &explicit[..])];
        let names = ByName::new(&own, &pairs, &provider).unwrap();
        let table = [
            ("own", &own),
            ("a.example", &first),
            ("A.EXAMPLE", &first),
            ("z.example", &first),
            ("b.example", &second),
            ("deep.z.example", &own),
            ("b.other", &third),
            ("x.example", &third),
            ("c", &own),
            ("example", &own),
        ];
        for (name, expected) in table {
            assert_eq!(names.find(name).cert.first().map(AsRef::as_ref), expected.leaf(), "{name}");
        }
        let addresses: Vec<_> = names.addresses().map(|(address, _)| address).collect();
        assert_eq!(addresses, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    }
}
