//! New keys and certificates.

use super::{
    material::{Authority, Material, Names},
    plan::{AUTHORITY_LIFETIME, MAX_AUTHORITIES, Renewal, SERVING_LIFETIME},
};
use evenkeel_api::time::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;

/// Time by which certificates are backdated, for clients whose clocks are slow.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// Error of making a certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssueError {
    /// A key or a certificate cannot be created.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The CA in the Secret cannot sign.
    #[error("cannot sign with the CA: {0}")]
    Signer(String),
}

/// Returns the material after a renewal.
///
/// # Errors
/// Fails if a key cannot be created, or the CA cannot sign.
pub(super) fn issue(
    renewal: Renewal,
    material: Option<&Material>,
    names: &Names,
    now: Timestamp,
) -> Result<Material, IssueError> {
    let material = material.cloned().unwrap_or_default();
    match renewal {
        Renewal::Everything => sign_serving(new_authority(&material, names, now)?, names, now),
        Renewal::Serving => sign_serving(material, names, now),
        Renewal::Authority => new_authority(&material, names, now),
        Renewal::Bundle => {
            let authorities = valid_authorities(&material, now, MAX_AUTHORITIES);
            Ok(Material {
                authorities: pem(authorities.iter().map(|known| &known.der)),
                ..material
            })
        }
    }
}

/// Creates a CA, and puts it before the CAs that are still valid.
fn new_authority(
    material: &Material,
    names: &Names,
    now: Timestamp,
) -> Result<Material, IssueError> {
    let mut params = params(now, now + AUTHORITY_LIFETIME);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let common_name = format!("{}.{}.svc CA", names.service, names.namespace);
    params.distinguished_name = distinguished_name(&common_name);
    let key = KeyPair::generate()?;
    let certificate: Certificate = params.self_signed(&key)?;
    let earlier = valid_authorities(material, now, MAX_AUTHORITIES - 1);
    let all = [certificate.der()].into_iter().chain(earlier.iter().map(|known| &known.der));
    let (authorities, authority_key) = (pem(all), key.serialize_pem().into_bytes());
    Ok(Material { authorities, authority_key, ..material.clone() })
}

/// Signs a serving certificate with a new key. The certificate does not outlive the CA.
fn sign_serving(material: Material, names: &Names, now: Timestamp) -> Result<Material, IssueError> {
    let (authority, authority_key) = material.signer().map_err(IssueError::Signer)?;
    let issuer = Issuer::from_ca_cert_der(&authority.der, authority_key)?;
    let until = (now + SERVING_LIFETIME).min(authority.validity.until);
    let mut params = params(now, until);
    params.subject_alt_names = names
        .hosts()
        .into_iter()
        .map(|host| host.try_into().map(rcgen::SanType::DnsName))
        .collect::<Result<_, _>>()?;
    params.distinguished_name =
        distinguished_name(&format!("{}.{}.svc", names.service, names.namespace));
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?.pem().into_bytes();
    Ok(Material { certificate, key: key.serialize_pem().into_bytes(), ..material })
}

fn params(now: Timestamp, until: Timestamp) -> CertificateParams {
    let time = |at: Timestamp| {
        let seconds = u64::try_from(at.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    let mut params = CertificateParams::default();
    params.not_before = time(now - BACKDATE);
    params.not_after = time(until);
    params
}

/// Returns the name of a certificate. A common name has at most 64 characters.
fn distinguished_name(common_name: &str) -> DistinguishedName {
    const MAX_LENGTH: usize = 64;
    let mut name = DistinguishedName::new();
    let start = common_name.len().saturating_sub(MAX_LENGTH);
    name.push(DnType::CommonName, common_name.get(start..).unwrap_or_default());
    name
}

/// Returns the first CAs that are still valid.
fn valid_authorities(material: &Material, now: Timestamp, limit: usize) -> Vec<Authority> {
    let known = material.authorities().into_iter().flatten();
    known.filter(|authority| authority.validity.until > now).take(limit).collect()
}

/// Encodes certificates as PEM.
fn pem<'a>(certificates: impl Iterator<Item = &'a CertificateDer<'static>>) -> Vec<u8> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    const LINE_LENGTH: usize = 64;
    let mut text = Vec::new();
    for certificate in certificates {
        text.extend(b"-----BEGIN CERTIFICATE-----\n");
        for line in BASE64_STANDARD.encode(certificate).as_bytes().chunks(LINE_LENGTH) {
            text.extend(line);
            text.push(b'\n');
        }
        text.extend(b"-----END CERTIFICATE-----\n");
    }
    text
}
