//! Parser of certificate signing requests (PKCS#10), as Go's `crypto/x509` reads them.

use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject as _};
use std::net::IpAddr;
use x509_parser::{
    certification_request::X509CertificationRequest,
    der_parser::oid::Oid,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer as _,
};

/// Error in parsing or verifying a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    /// The input has no PEM block of the type `CERTIFICATE REQUEST`.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    /// The block is not PKCS#10.
    #[error("the request is no PKCS#10: {0}")]
    Der(String),
    /// This part of the request is malformed.
    #[error("the request's {0} cannot be read")]
    Part(&'static str),
    /// The signature does not match the public key.
    #[error("unable to verify certificate request signature: {0}")]
    Signature(String),
}

/// A parsed certificate signing request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ParsedRequest {
    pub(super) subject: Subject,
    pub(super) dns_names: Vec<String>,
    pub(super) emails: Vec<String>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) uris: Vec<String>,
    /// SubjectPublicKeyInfo in DER.
    pub(super) public_key: Vec<u8>,
    /// The whole request in DER.
    der: Vec<u8>,
}

/// Subject of the request. Attributes without a field are ignored, as in Go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Subject {
    pub(super) countries: Vec<String>,
    pub(super) organizations: Vec<String>,
    pub(super) organizational_units: Vec<String>,
    pub(super) localities: Vec<String>,
    pub(super) provinces: Vec<String>,
    pub(super) streets: Vec<String>,
    pub(super) postal_codes: Vec<String>,
    pub(super) common_name: String,
    pub(super) serial_number: String,
}

impl ParsedRequest {
    /// Reads the first certificate request in PEM.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, RequestError> {
        let der =
            CertificateSigningRequestDer::from_pem_slice(pem).map_err(|_| RequestError::Pem)?;
        let invalid = |error: &dyn std::fmt::Display| RequestError::Der(error.to_string());
        let (_, parsed) =
            X509CertificationRequest::from_der(&der).map_err(|error| invalid(&error))?;
        let info = &parsed.certification_request_info;
        let mut request = Self {
            public_key: info.subject_pki.raw.to_vec(),
            subject: parse_subject(&info.subject)?,
            ..Self::default()
        };
        for extension in parsed.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension {
                for name in &names.general_names {
                    request.add_alternative_name(name)?;
                }
            }
        }
        request.der = der.to_vec();
        Ok(request)
    }

    /// Verifies that the request is signed with its own key.
    pub(super) fn verify(&self) -> Result<(), RequestError> {
        let failed = |error: &dyn std::fmt::Display| RequestError::Signature(error.to_string());
        let (_, parsed) =
            X509CertificationRequest::from_der(&self.der).map_err(|error| failed(&error))?;
        parsed.verify_signature().map_err(|error| failed(&error))
    }

    /// Adds a subject alternative name. As in Go, names of unknown types are ignored.
    fn add_alternative_name(&mut self, name: &GeneralName<'_>) -> Result<(), RequestError> {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => self.addresses.push(parse_address(bytes)?),
            GeneralName::Invalid(..) => return Err(RequestError::Part("subjectAltName")),
            _ => {}
        }
        Ok(())
    }
}

/// Returns the IP address in these 4 or 16 bytes.
fn parse_address(bytes: &[u8]) -> Result<IpAddr, RequestError> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ok(IpAddr::from(v4));
    }
    let v6 = <[u8; 16]>::try_from(bytes).map_err(|_| RequestError::Part("IP subjectAltName"))?;
    Ok(IpAddr::from(v6))
}

/// Reads the subject's attributes. X.520 defines the numbers.
fn parse_subject(name: &x509_parser::x509::X509Name<'_>) -> Result<Subject, RequestError> {
    let mut subject = Subject::default();
    for attribute in name.iter_attributes() {
        let Some(number) = x520_number(attribute.attr_type()) else { continue };
        let value = attribute.as_str().map_err(|_| RequestError::Part("subject"))?.to_owned();
        match number {
            3 => subject.common_name = value,
            5 => subject.serial_number = value,
            6 => subject.countries.push(value),
            7 => subject.localities.push(value),
            8 => subject.provinces.push(value),
            9 => subject.streets.push(value),
            10 => subject.organizations.push(value),
            11 => subject.organizational_units.push(value),
            17 => subject.postal_codes.push(value),
            _ => {}
        }
    }
    Ok(subject)
}

/// Returns the last number of an X.520 attribute, whose object identifier starts with 2.5.4. Returns `None` for other
/// attributes.
fn x520_number(oid: &Oid<'_>) -> Option<u64> {
    match *oid.iter()?.collect::<Vec<_>>() {
        [2, 5, 4, number] => Some(number),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    /// Returns a request in PEM with this subject and these names. `rcgen` writes only one value of each attribute.
    pub(in crate::certificates) fn pem(
        organization: &str,
        common: &str,
        names: &[SanType],
    ) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !organization.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = names.to_vec();
        let key = KeyPair::generate().unwrap();
        params.serialize_request(&key).unwrap().pem().unwrap()
    }

    #[test]
    fn subject_and_alternative_names_are_parsed() {
        let names = [
            SanType::DnsName("a.test".try_into().unwrap()),
            SanType::IpAddress("10.0.0.1".parse().unwrap()),
            SanType::IpAddress("fd00::1".parse().unwrap()),
            SanType::URI("spiffe://a/b".try_into().unwrap()),
            SanType::Rfc822Name("me@a.test".try_into().unwrap()),
        ];
        let request = ParsedRequest::from_pem(pem("team", "me", &names).as_bytes()).unwrap();
        assert_eq!(request.subject.organizations, ["team"]);
        assert_eq!(request.subject.common_name, "me");
        assert_eq!(request.dns_names, ["a.test"]);
        assert_eq!(
            request.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.1", "fd00::1"]
        );
        assert_eq!((&*request.uris[0], &*request.emails[0]), ("spiffe://a/b", "me@a.test"));
        request.verify().unwrap();
    }

    #[test]
    fn invalid_pem_and_der_are_rejected() {
        assert_eq!(ParsedRequest::from_pem(b"nothing"), Err(RequestError::Pem));
        let other = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(ParsedRequest::from_pem(other.as_bytes()), Err(RequestError::Pem));
        let invalid =
            "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
        assert!(matches!(ParsedRequest::from_pem(invalid.as_bytes()), Err(RequestError::Der(_))));
    }

    #[test]
    fn invalid_signature_is_rejected() {
        let mut request = ParsedRequest::from_pem(pem("", "me", &[]).as_bytes()).unwrap();
        let at = request.der.len() - 1;
        request.der[at] ^= 1;
        assert!(matches!(request.verify(), Err(RequestError::Signature(_))));
    }
}
