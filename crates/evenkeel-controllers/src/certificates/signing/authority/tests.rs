use super::*;
use crate::{
    certificates::{request::tests::pem as request_pem, signing::Pair},
    fixtures::{T0, at},
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, SanType};
use x509_parser::extensions::{GeneralName, ParsedExtension};

const RSA_KEY: &str = include_str!("../../../core/serviceaccounttoken/testdata/rsa.pem");

/// Returns a certificate authority with this key, valid until this many days after [`T0`].
fn authority_of(key: &KeyPair, days: i64) -> Pair {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "ca");
    let end = at(days * 86_400).to_zoned(jiff::tz::TimeZone::UTC);
    let (month, day) = (u8::try_from(end.month()).unwrap(), u8::try_from(end.day()).unwrap());
    params.not_after = rcgen::date_time_ymd(i32::from(end.year()), month, day);
    let certificate = params.self_signed(key).unwrap().pem();
    Pair::Texts { certificate, key: key.serialize_pem() }
}

pub(in crate::certificates::signing) fn authority(days: i64) -> Pair {
    authority_of(&KeyPair::generate().unwrap(), days)
}

fn usages(all: &[&str]) -> Vec<String> {
    all.iter().map(|usage| (*usage).to_owned()).collect()
}

fn sign(
    pair: &Pair,
    request: &ParsedRequest,
    usage: &[&str],
    hours: u64,
) -> Result<String, SignError> {
    let authority = open(pair).unwrap();
    authority.sign(request, &usages(usage), [7; 16], Duration::from_secs(hours * 3600), T0)
}

fn open(pair: &Pair) -> Result<CertificateAuthority, AuthorityError> {
    let Pair::Texts { certificate, key } = pair else { panic!("{pair:?}") };
    let texts = PemTexts { certificate: certificate.as_bytes().into(), key: key.as_bytes().into() };
    CertificateAuthority::new(&texts)
}

/// Checks that the authority signed a certificate, and then the certificate's content.
fn check(pair: &Pair, pem: &str, check_content: impl FnOnce(&X509Certificate<'_>)) {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (rest, parsed) = X509Certificate::from_der(&der).unwrap();
    assert!(rest.is_empty());
    let Pair::Texts { certificate, .. } = pair else { panic!("{pair:?}") };
    let ca = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let (_, ca) = X509Certificate::from_der(&ca).unwrap();
    assert_eq!(parsed.issuer().as_raw(), ca.subject().as_raw());
    parsed.verify_signature(Some(ca.public_key())).unwrap();
    check_content(&parsed);
}

#[test]
fn certificate_has_names_usages_and_validity() {
    let pair = authority(1000);
    let names = [
        SanType::URI("spiffe://a/b".try_into().unwrap()),
        SanType::IpAddress("10.0.0.1".parse().unwrap()),
        SanType::DnsName("a.test".try_into().unwrap()),
    ];
    let request = ParsedRequest::from_pem(request_pem("team*", "me", &names).as_bytes()).unwrap();
    let pem = sign(&pair, &request, &["client auth", "key encipherment", "digital signature"], 1)
        .unwrap();
    check(&pair, &pem, |certificate| {
        assert_eq!(certificate.subject().to_string(), "O=team*, CN=me");
        let (start, end) = (certificate.validity().not_before, certificate.validity().not_after);
        assert_eq!(
            (start.timestamp(), end.timestamp()),
            (at(-300).as_second(), at(3600).as_second())
        );
        let usage = certificate.key_usage().unwrap().unwrap();
        assert!(
            usage.critical && usage.value.digital_signature() && usage.value.key_encipherment()
        );
        assert!(!usage.value.key_cert_sign());
        let purposes = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.client_auth && !purposes.server_auth);
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && !constraints.value.ca);
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        let names = &names.value.general_names;
        assert!(
            matches!(
                **names,
                [
                    GeneralName::DNSName("a.test"),
                    GeneralName::IPAddress([10, 0, 0, 1]),
                    GeneralName::URI(_)
                ]
            ),
            "{names:?}"
        );
        let key = certificate.iter_extensions().find_map(|extension| {
            match extension.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref(),
                _ => None,
            }
        });
        assert!(key.is_some());
    });
}

#[test]
fn certificate_has_all_organizations() {
    let pair = authority(1000);
    let mut request = ParsedRequest::from_pem(request_pem("", "me", &[]).as_bytes()).unwrap();
    request.subject.organizations = ["zoo", "team", "bären"].map(str::to_owned).to_vec();
    let pem = sign(&pair, &request, &["client auth"], 9000).unwrap();
    check(&pair, &pem, |certificate| {
        let groups = certificate
            .subject()
            .iter_organization()
            .map(|organization| organization.as_str().unwrap());
        // DER sorts the values of a set by length, then by bytes.
        assert_eq!(groups.collect::<Vec<_>>(), ["zoo", "team", "bären"]);
        assert!(certificate.key_usage().unwrap().is_none());
    });
}

#[test]
fn each_key_algorithm_signs() {
    let request = ParsedRequest::from_pem(request_pem("", "me", &[]).as_bytes()).unwrap();
    for algorithm in
        [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
    {
        let pair = authority_of(&KeyPair::generate_for(algorithm).unwrap(), 10);
        check(&pair, &sign(&pair, &request, &["any"], 1).unwrap(), |_| {});
    }
    let pair = authority_of(&rsa(), 10);
    check(&pair, &sign(&pair, &request, &["any"], 1).unwrap(), |_| {});
}

/// Returns the RSA key of the test data, converted to PKCS#8, the only form that `rcgen` reads.
fn rsa() -> KeyPair {
    let der = rustls_pki_types::PrivateKeyDer::from_pem_slice(RSA_KEY.as_bytes()).unwrap();
    let der = match &der {
        rustls_pki_types::PrivateKeyDer::Pkcs1(der) => yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_i8(0);
                writer.next().write_sequence(|writer| {
                    let oid = [1, 2, 840, 113_549, 1, 1, 1];
                    writer.next().write_oid(&yasna::models::ObjectIdentifier::from_slice(&oid));
                    writer.next().write_null();
                });
                writer.next().write_bytes(der.secret_pkcs1_der());
            });
        }),
        other => other.secret_der().to_vec(),
    };
    KeyPair::try_from(der).unwrap()
}

#[test]
fn invalid_authority_or_usage_is_rejected() {
    let request = ParsedRequest::from_pem(request_pem("", "me", &[]).as_bytes()).unwrap();
    let old = authority(-2);
    assert!(matches!(sign(&old, &request, &["any"], 1), Err(SignError::Expired(_))));
    let pair = authority(10);
    assert!(matches!(sign(&pair, &request, &["flying"], 1), Err(SignError::Usages(_))));
    let Pair::Texts { certificate, key } = authority(10) else { panic!() };
    let Pair::Texts { key: other, .. } = authority(10) else { panic!() };
    let open = |certificate: &str, key: &str| {
        open(&Pair::Texts { certificate: certificate.to_owned(), key: key.to_owned() }).err()
    };
    assert!(matches!(open(&certificate, &other), Some(AuthorityError::KeyMismatch)));
    assert!(matches!(open(&certificate.repeat(2), &key), Some(AuthorityError::Count(2))));
    assert!(matches!(open("", &key), Some(AuthorityError::Count(0))));
    assert!(matches!(open(&certificate, &certificate), Some(AuthorityError::Key(_))));
}
