//! Encoder of certificates, with the fields, order and encodings of Go's `crypto/x509`. This program and upstream's
//! thus issue the same certificates. Rust libraries encode only one value per attribute, whereas users have several
//! groups.

use super::usage::Usages;
use crate::certificates::request::{Request, Subject};
use evenkeel_api::time::Timestamp;
use evenkeel_x509::keys::Algorithm;
use jiff::tz::TimeZone;
use std::net::IpAddr;
use yasna::{DERWriter, DERWriterSeq, Tag, construct_der, models::ObjectIdentifier};

/// Subject and extensions of a certificate.
pub(super) struct Content<'a> {
    pub(super) request: &'a Request,
    pub(super) usages: &'a Usages,
    pub(super) serial: [u8; 16],
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// Issuer of a certificate.
pub(super) struct IssuerFields<'a> {
    /// Subject of its own certificate, in DER.
    pub(super) name: &'a [u8],
    /// Subject key identifier; empty if its certificate has none.
    pub(super) key_id: &'a [u8],
    pub(super) algorithm: Algorithm,
}

/// Returns the `TBSCertificate` in DER.
pub(super) fn to_be_signed(content: &Content<'_>, issuer: &IssuerFields<'_>) -> Vec<u8> {
    let subject = name(&content.request.subject);
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_i8(2));
            writer.next().write_bigint_bytes(&content.serial, true);
            algorithm(writer.next(), issuer.algorithm);
            writer.next().write_der(issuer.name);
            writer.next().write_sequence(|writer| {
                time(writer.next(), content.not_before);
                time(writer.next(), content.not_after);
            });
            writer.next().write_der(&subject);
            writer.next().write_der(&content.request.key);
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| extensions(writer, content, issuer, &subject));
            });
        });
    })
}

/// Returns the signed certificate in DER.
pub(super) fn signed(to_be_signed: &[u8], issuer: &IssuerFields<'_>, signature: &[u8]) -> Vec<u8> {
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(to_be_signed);
            algorithm(writer.next(), issuer.algorithm);
            writer.next().write_bitvec_bytes(signature, signature.len() * 8);
        });
    })
}

fn oid(numbers: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(numbers)
}

fn algorithm(writer: DERWriter<'_>, algorithm: Algorithm) {
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
fn time(writer: DERWriter<'_>, time: Timestamp) {
    let time = time.to_zoned(TimeZone::UTC);
    let (tag, text) = if (1950..2050).contains(&time.year()) {
        (yasna::tags::TAG_UTCTIME, time.strftime("%y%m%d%H%M%SZ").to_string())
    } else {
        (yasna::tags::TAG_GENERALIZEDTIME, time.strftime("%Y%m%d%H%M%SZ").to_string())
    };
    writer.write_tagged_implicit(tag, |writer| writer.write_bytes(text.as_bytes()));
}

/// Returns a distinguished name in Go's order, with all values of an attribute in one set.
fn name(subject: &Subject) -> Vec<u8> {
    let one = |text: &String| if text.is_empty() { Vec::new() } else { vec![text.clone()] };
    let (common, serial) = (one(&subject.common_name), one(&subject.serial_number));
    let attributes: [(u64, &[String]); 9] = [
        (6, &subject.countries),
        (10, &subject.organizations),
        (11, &subject.units),
        (7, &subject.localities),
        (8, &subject.provinces),
        (9, &subject.streets),
        (17, &subject.postal_codes),
        (3, &common),
        (5, &serial),
    ];
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            for (number, values) in attributes.iter().filter(|(_, values)| !values.is_empty()) {
                writer.next().write_set_of(|writer| {
                    for value in *values {
                        writer.next().write_sequence(|writer| {
                            writer.next().write_oid(&oid(&[2, 5, 4, *number]));
                            text(writer.next(), value);
                        });
                    }
                });
            }
        });
    })
}

/// Writes a PrintableString if possible, else a UTF8String. As in Go, the asterisk and the ampersand are not printable.
fn text(writer: DERWriter<'_>, text: &str) {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte);
    if text.bytes().all(is_printable) {
        writer.write_printable_string(text);
    } else {
        writer.write_utf8_string(text);
    }
}

fn extensions(
    writer: &mut DERWriterSeq<'_>,
    content: &Content<'_>,
    issuer: &IssuerFields<'_>,
    subject: &[u8],
) {
    let Content { request, usages, .. } = content;
    let bits = usages.bits();
    if bits != 0 {
        extension(writer, 15, true, &construct_der(|writer| key_usage(writer, bits)));
    }
    let purposes = usages.purposes();
    if !purposes.is_empty() {
        let value = construct_der(|writer| {
            writer.write_sequence(|writer| {
                purposes.iter().for_each(|numbers| writer.next().write_oid(&oid(numbers)));
            });
        });
        extension(writer, 37, false, &value);
    }
    // Basic constraints: not a certificate authority.
    extension(writer, 19, true, &construct_der(|writer| writer.write_sequence(|_| {})));
    if !issuer.key_id.is_empty() && issuer.name != subject {
        let value = construct_der(|writer| {
            writer.write_sequence(|writer| {
                let id = |writer: DERWriter<'_>| writer.write_bytes(issuer.key_id);
                writer.next().write_tagged_implicit(Tag::context(0), id);
            });
        });
        extension(writer, 35, false, &value);
    }
    if let Some(value) = alternative_names(request) {
        extension(writer, 17, subject == EMPTY, &value);
    }
}

/// DER of an empty sequence.
const EMPTY: &[u8] = &[0x30, 0x00];

/// Writes an extension of RFC 5280 (2.5.29.…).
fn extension(writer: &mut DERWriterSeq<'_>, number: u64, critical: bool, value: &[u8]) {
    writer.next().write_sequence(|writer| {
        writer.next().write_oid(&oid(&[2, 5, 29, number]));
        if critical {
            writer.next().write_bool(true);
        }
        writer.next().write_bytes(value);
    });
}

/// Writes the key usage: the first bit is the highest, and trailing zero bits are omitted.
fn key_usage(writer: DERWriter<'_>, bits: u16) {
    let bytes = bits.reverse_bits().to_be_bytes();
    let length = 16 - bits.leading_zeros() as usize;
    writer.write_bitvec_bytes(&bytes[..length.div_ceil(8)], length);
}

fn alternative_names(request: &Request) -> Option<Vec<u8>> {
    let Request { dns_names, emails, addresses, uris, .. } = request;
    if dns_names.is_empty() && emails.is_empty() && addresses.is_empty() && uris.is_empty() {
        return None;
    }
    let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
    all.extend(dns_names.iter().map(|name| (2, name.clone().into_bytes())));
    all.extend(emails.iter().map(|name| (1, name.clone().into_bytes())));
    all.extend(addresses.iter().map(|address| match address {
        IpAddr::V4(address) => (7, address.octets().to_vec()),
        IpAddr::V6(address) => {
            let ipv4 = address.to_ipv4_mapped().map(|address| address.octets().to_vec());
            (7, ipv4.unwrap_or_else(|| address.octets().to_vec()))
        }
    }));
    all.extend(uris.iter().map(|name| (6, name.clone().into_bytes())));
    Some(construct_der(|writer| {
        writer.write_sequence(|writer| {
            for (tag, value) in &all {
                let tag = Tag::context(*tag);
                writer.next().write_tagged_implicit(tag, |writer| writer.write_bytes(value));
            }
        });
    }))
}
