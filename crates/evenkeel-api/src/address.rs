//! IP addresses in text form: parsing and canonical form.

// `core::net` has only address types and no I/O, which this crate must not do.
use core::net::{IpAddr, Ipv4Addr};

/// Parses an address like Go's `ParseIPSloppy`: accepts leading zeros, and converts an IPv4-mapped IPv6 address to
/// IPv4.
pub fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    let mut parts = text.split('.');
    let mut octets = [0; 4];
    for octet in &mut octets {
        *octet = parse_octet(parts.next()?)?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets).into())
}

/// Parses a part of an IPv4 address, which may have only digits.
fn parse_octet(text: &str) -> Option<u8> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match text.trim_start_matches('0') {
        "" => Some(0),
        digits => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_in_go() {
        let table = [
            ("10.0.0.1", Some("10.0.0.1")),
            ("010.000.0.01", Some("10.0.0.1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("FD00:0:0::1", Some("fd00::1")),
            ("10.0.0", None),
            ("10.0.0.1.2", None),
            ("10.0.0.256", None),
            ("10..0.1", None),
            ("host", None),
            ("", None),
        ];
        for (text, want) in table {
            assert_eq!(parse(text).map(|ip| ip.to_string()).as_deref(), want, "{text}");
        }
    }
}
