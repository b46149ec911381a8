//! CIDRs: ranges of IP addresses.

// `core::net` has only address types and no I/O, which this crate must not do.
use core::net::IpAddr;
use std::fmt;

/// An IP address range in the notation `address/length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    first: IpAddr,
    length: u8,
}

impl Cidr {
    /// Parses a CIDR, ignores spaces around it, and clears the host bits.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.trim().split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        Some(Self::new(address, parse_prefix_length(address, length)?))
    }

    /// Returns the range with this prefix length that contains the address. A length above the number of bits of the
    /// address (32 or 128) is reduced to that number.
    pub fn new(address: IpAddr, length: u8) -> Self {
        let length = length.min(address_bits(address));
        let network = number(address) & !host_mask(address, length);
        let first = from_number(network, address.is_ipv4());
        Self { first, length }
    }

    /// Returns the first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Returns the last address.
    pub fn last(&self) -> IpAddr {
        let last = number(self.first) | host_mask(self.first, self.length);
        from_number(last, self.first.is_ipv4())
    }

    /// Returns the prefix length in bits.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns whether this is an IPv4 range.
    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// Returns whether the other range lies completely within this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.first)
    }

    /// Returns whether both ranges share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }

    /// Returns whether the range contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && self.first <= address && address <= self.last()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

/// Parses the prefix length after the `/` of a CIDR: decimal digits, at most the number of bits of the address.
/// Leading zeros are allowed, as in Go's `net.ParseCIDR`.
pub fn parse_prefix_length(address: IpAddr, text: &str) -> Option<u8> {
    // `u8::from_str` would also accept a leading `+`.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|length| *length <= address_bits(address))
}

/// Parses a prefix length like [`parse_prefix_length`], but rejects leading zeros, as Go's `netip.ParsePrefix`
/// does.
pub fn parse_canonical_prefix_length(address: IpAddr, text: &str) -> Option<u8> {
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    if has_leading_zero { None } else { parse_prefix_length(address, text) }
}

/// Returns the numeric value of an address.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// Returns the address with this numeric value. An IPv4 address uses the lowest 32 bits.
pub fn from_number(number: u128, is_ipv4: bool) -> IpAddr {
    if is_ipv4 { IpAddr::V4((number as u32).into()) } else { IpAddr::V6(number.into()) }
}

/// Returns the number of bits of addresses of this family.
fn address_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns the mask of the host bits, which follow the first `length` bits.
fn host_mask(address: IpAddr, length: u8) -> u128 {
    let host_bits = u32::from(address_bits(address) - length);
    // A shift by 128 bits overflows: then all bits are host bits.
    1u128.checked_shl(host_bits).map_or(u128::MAX, |bit| bit - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_cover_and_overlap() {
        // Range, and its first and last address.
        let table = [
            ("10.0.0.7/24", "10.0.0.0", "10.0.0.255"),
            ("10.1.2.3/32", "10.1.2.3", "10.1.2.3"),
            ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
            ("fd00::1/64", "fd00::", "fd00::ffff:ffff:ffff:ffff"),
            ("::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ];
        for (text, first, last) in table {
            let range = Cidr::parse(text).unwrap();
            assert_eq!(
                (range.first().to_string(), range.last().to_string()),
                (first.into(), last.into())
            );
            assert!(range.contains(range.first()) && range.contains(range.last()), "{text}");
        }
        let (wide, narrow) =
            (Cidr::parse("10.0.0.0/8").unwrap(), Cidr::parse("10.1.0.0/16").unwrap());
        assert!(wide.covers(&narrow) && !narrow.covers(&wide) && narrow.covers(&narrow));
        let overlap = |a, b| Cidr::parse(a).unwrap().overlaps(&Cidr::parse(b).unwrap());
        assert!(overlap("10.0.0.0/8", "10.1.0.0/16") && overlap("10.1.0.0/16", "10.0.0.0/8"));
        assert!(!overlap("10.0.0.0/16", "10.1.0.0/16") && !overlap("0.0.0.0/0", "::/0"));
        assert_eq!(Cidr::parse("10.0.0.7/24").unwrap().to_string(), "10.0.0.0/24");
        assert!(!Cidr::parse("10.0.0.0/24").unwrap().contains("10.0.1.0".parse().unwrap()));
        assert!(!Cidr::parse("::/0").unwrap().contains("10.0.1.0".parse().unwrap()));
        for bad in
            ["10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/129", "10.0.0.0/-1", "10.0.0.0/+8", ""]
        {
            assert_eq!(Cidr::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn prefix_lengths_are_digits() {
        let (v4, v6) = (IpAddr::from([10, 0, 0, 0]), IpAddr::from([0u16; 8]));
        for (text, length, canonical) in [
            ("0", Some(0), Some(0)),
            ("8", Some(8), Some(8)),
            ("32", Some(32), Some(32)),
            ("08", Some(8), None),
            ("00", Some(0), None),
            ("33", None, None),
            ("+8", None, None),
            ("-1", None, None),
            (" 8", None, None),
            ("", None, None),
            ("99999999999", None, None),
        ] {
            assert_eq!(parse_prefix_length(v4, text), length, "{text:?}");
            assert_eq!(parse_canonical_prefix_length(v4, text), canonical, "{text:?}");
        }
        assert_eq!(parse_canonical_prefix_length(v6, "128"), Some(128));
        assert_eq!(parse_canonical_prefix_length(v6, "129"), None);
    }
}
