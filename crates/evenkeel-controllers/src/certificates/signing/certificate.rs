//! Encoder of certificates, with the fields, order and encodings of Go's `crypto/x509`, so that this program issues the
//! same certificates as upstream's. No Rust library is used, because they encode only one value of each attribute, and
//! a subject may have several organizations.

use super::usage::Usages;
use crate::certificates::request::{ParsedRequest, Subject};
use evenkeel_api::time::Timestamp;
use evenkeel_x509::keys::Algorithm;
use jiff::tz::TimeZone;
use std::net::IpAddr;
use yasna::{DERWriter, DERWriterSeq, Tag, construct_der, models::ObjectIdentifier};

/// Validity of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// Subject and extensions of a certificate.
pub(super) struct Content<'a> {
    pub(super) request: &'a ParsedRequest,
    pub(super) usages: &'a Usages,
    pub(super) serial: [u8; 16],
    pub(super) validity: Validity,
}

/// Issuer of a certificate.
pub(super) struct IssuerFields<'a> {
    /// Subject of its own certificate, in DER.
    pub(super) name: &'a [u8],
    /// Subject key identifier. Empty if its certificate has none.
    pub(super) key_id: &'a [u8],
    pub(super) algorithm: Algorithm,
}

/// Returns the part of a certificate that is signed, `TBSCertificate`, in DER.
pub(super) fn encode_tbs_certificate(content: &Content<'_>, issuer: &IssuerFields<'_>) -> Vec<u8> {
    let subject = encode_name(&content.request.subject);
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            // Version 3 has the number 2.
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_i8(2));
            let is_positive = true;
            writer.next().write_bigint_bytes(&content.serial, is_positive);
            write_algorithm(writer.next(), issuer.algorithm);
            writer.next().write_der(issuer.name);
            writer.next().write_sequence(|writer| {
                write_time(writer.next(), content.validity.not_before);
                write_time(writer.next(), content.validity.not_after);
            });
            writer.next().write_der(&subject);
            writer.next().write_der(&content.request.public_key);
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| write_extensions(writer, content, issuer, &subject));
            });
        });
    })
}

/// Returns the signed certificate in DER.
pub(super) fn encode_certificate(
    tbs_certificate: &[u8],
    issuer: &IssuerFields<'_>,
    signature: &[u8],
) -> Vec<u8> {
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(tbs_certificate);
            write_algorithm(writer.next(), issuer.algorithm);
            writer.next().write_bitvec_bytes(signature, signature.len() * 8);
        });
    })
}

/// Returns the object identifier with these numbers.
fn oid(numbers: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(numbers)
}

/// Writes the AlgorithmIdentifier of a signature algorithm.
fn write_algorithm(writer: DERWriter<'_>, algorithm: Algorithm) {
    writer.write_sequence(|writer| {
        let numbers: &[u64] = match algorithm {
            Algorithm::RsaSha256 => &[1, 2, 840, 113_549, 1, 1, 11],
            Algorithm::P256Sha256 => &[1, 2, 840, 10045, 4, 3, 2],
            Algorithm::P384Sha384 => &[1, 2, 840, 10045, 4, 3, 3],
            Algorithm::Ed25519 => &[1, 3, 101, 112],
        };
        writer.next().write_oid(&oid(numbers));
        if algorithm == Algorithm::RsaSha256 {
            writer.next().write_null();
        }
    });
}

/// Writes a UTCTime until 2049, then a GeneralizedTime (RFC 5280, 4.1.2.5).
fn write_time(writer: DERWriter<'_>, time: Timestamp) {
    let time = time.to_zoned(TimeZone::UTC);
    let (tag, text) = if (1950..2050).contains(&time.year()) {
        (yasna::tags::TAG_UTCTIME, time.strftime("%y%m%d%H%M%SZ").to_string())
    } else {
        (yasna::tags::TAG_GENERALIZEDTIME, time.strftime("%Y%m%d%H%M%SZ").to_string())
    };
    writer.write_tagged_implicit(tag, |writer| writer.write_bytes(text.as_bytes()));
}

/// Returns a distinguished name in DER, with the attributes in Go's order and all values of an attribute in one set.
fn encode_name(subject: &Subject) -> Vec<u8> {
    let unless_empty =
        |text: &String| if text.is_empty() { Vec::new() } else { vec![text.clone()] };
    let common_name = unless_empty(&subject.common_name);
    let serial_number = unless_empty(&subject.serial_number);
    // Numbers of the attributes of X.520, after 2.5.4, with their values.
    let attributes: [(u64, &[String]); 9] = [
        (6, &subject.countries),
        (10, &subject.organizations),
        (11, &subject.organizational_units),
        (7, &subject.localities),
        (8, &subject.provinces),
        (9, &subject.streets),
        (17, &subject.postal_codes),
        (3, &common_name),
        (5, &serial_number),
    ];
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            for (number, values) in attributes.iter().filter(|(_, values)| !values.is_empty()) {
                writer.next().write_set_of(|writer| {
                    for value in *values {
                        writer.next().write_sequence(|writer| {
                            writer.next().write_oid(&oid(&[2, 5, 4, *number]));
                            write_text(writer.next(), value);
                        });
                    }
                });
            }
        });
    })
}

/// Writes a PrintableString if possible, otherwise a UTF8String. As in Go, the asterisk and the ampersand are not printable.
fn write_text(writer: DERWriter<'_>, text: &str) {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte);
    if text.bytes().all(is_printable) {
        writer.write_printable_string(text);
    } else {
        writer.write_utf8_string(text);
    }
}

/// Writes the X.509 extensions of a certificate.
fn write_extensions(
    writer: &mut DERWriterSeq<'_>,
    content: &Content<'_>,
    issuer: &IssuerFields<'_>,
    subject: &[u8],
) {
    let Content { request, usages, .. } = content;
    let bits = usages.key_usage_bits();
    if bits != 0 {
        let value = construct_der(|writer| write_key_usage(writer, bits));
        write_extension(writer, &Extension { number: KEY_USAGE, is_critical: true, value });
    }
    let extended = usages.extended_key_usages();
    if !extended.is_empty() {
        let value = construct_der(|writer| {
            writer.write_sequence(|writer| {
                extended.iter().for_each(|numbers| writer.next().write_oid(&oid(numbers)));
            });
        });
        write_extension(
            writer,
            &Extension { number: EXTENDED_KEY_USAGE, is_critical: false, value },
        );
    }
    // Empty basic constraints: the certificate does not belong to an authority.
    let value = construct_der(|writer| writer.write_sequence(|_| {}));
    write_extension(writer, &Extension { number: BASIC_CONSTRAINTS, is_critical: true, value });
    if !issuer.key_id.is_empty() && issuer.name != subject {
        let value = construct_der(|writer| {
            writer.write_sequence(|writer| {
                let id = |writer: DERWriter<'_>| writer.write_bytes(issuer.key_id);
                writer.next().write_tagged_implicit(Tag::context(0), id);
            });
        });
        write_extension(
            writer,
            &Extension { number: AUTHORITY_KEY_IDENTIFIER, is_critical: false, value },
        );
    }
    if let Some(value) = encode_alternative_names(request) {
        // Without a subject, the alternative names alone identify the holder.
        let is_critical = subject == EMPTY_SEQUENCE;
        write_extension(writer, &Extension { number: SUBJECT_ALT_NAME, is_critical, value });
    }
}

/// DER of an empty sequence.
const EMPTY_SEQUENCE: &[u8] = &[0x30, 0x00];

// Numbers of the extensions of RFC 5280, after 2.5.29.
/// Last number of the identifier of keyUsage.
const KEY_USAGE: u64 = 15;
/// Last number of the identifier of subjectAltName.
const SUBJECT_ALT_NAME: u64 = 17;
/// Last number of the identifier of basicConstraints.
const BASIC_CONSTRAINTS: u64 = 19;
/// Last number of the identifier of authorityKeyIdentifier.
const AUTHORITY_KEY_IDENTIFIER: u64 = 35;
/// Last number of the identifier of extKeyUsage.
const EXTENDED_KEY_USAGE: u64 = 37;

/// An X.509 extension with its encoded value.
struct Extension {
    number: u64,
    is_critical: bool,
    /// Content of the extension, in DER.
    value: Vec<u8>,
}

/// Writes one X.509 extension.
fn write_extension(writer: &mut DERWriterSeq<'_>, extension: &Extension) {
    writer.next().write_sequence(|writer| {
        writer.next().write_oid(&oid(&[2, 5, 29, extension.number]));
        if extension.is_critical {
            writer.next().write_bool(true);
        }
        writer.next().write_bytes(&extension.value);
    });
}

/// Writes the key usage as a bit string, which begins with bit 0 and has no trailing zero bits.
fn write_key_usage(writer: DERWriter<'_>, bits: u16) {
    let bytes = bits.reverse_bits().to_be_bytes();
    let length = 16 - bits.leading_zeros() as usize;
    writer.write_bitvec_bytes(&bytes[..length.div_ceil(8)], length);
}

/// Encodes the subject alternative names of the request, or returns `None` if it has none.
fn encode_alternative_names(request: &ParsedRequest) -> Option<Vec<u8>> {
    let ParsedRequest { dns_names, emails, addresses, uris, .. } = request;
    if dns_names.is_empty() && emails.is_empty() && addresses.is_empty() && uris.is_empty() {
        return None;
    }
    // Tags of `GeneralName` in RFC 5280.
    let email = 1;
    let dns = 2;
    let uri = 6;
    let ip_address = 7;
    let mut names: Vec<(u64, Vec<u8>)> = Vec::new();
    names.extend(dns_names.iter().map(|name| (dns, name.clone().into_bytes())));
    names.extend(emails.iter().map(|name| (email, name.clone().into_bytes())));
    names.extend(addresses.iter().map(|address| (ip_address, octets(address))));
    names.extend(uris.iter().map(|name| (uri, name.clone().into_bytes())));
    Some(construct_der(|writer| {
        writer.write_sequence(|writer| {
            for (tag, value) in &names {
                let tag = Tag::context(*tag);
                writer.next().write_tagged_implicit(tag, |writer| writer.write_bytes(value));
            }
        });
    }))
}

/// Returns the bytes of an address: 4, also for an IPv4 address that is mapped to IPv6, or 16.
fn octets(address: &IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
