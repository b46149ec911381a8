//! Ranges of addresses.

// The types alone: there is no I/O in `core`.
use core::net::IpAddr;
use std::fmt;

/// A range in the notation `address/length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    first: IpAddr,
    length: u8,
}

impl Cidr {
    /// Reads a range; bits past its length are dropped.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.trim().split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let length: u8 = length.parse().ok()?;
        (length <= bits(address)).then(|| Self::new(address, length))
    }

    /// The range of this length that an address is in; no longer than the address.
    pub fn new(address: IpAddr, length: u8) -> Self {
        let length = length.min(bits(address));
        let first = from_number(number(address) & !mask(address, length), address.is_ipv4());
        Self { first, length }
    }

    /// Its first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Its last address.
    pub fn last(&self) -> IpAddr {
        from_number(number(self.first) | mask(self.first, self.length), self.first.is_ipv4())
    }

    /// How many bits all its addresses share.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether it is of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// Whether all of the other range is in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.first)
    }

    /// Whether any address is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }

    /// Whether the address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && self.first <= address && address <= self.last()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

/// An address as a number.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// The address that a number is; of an IPv4 address only the low half of the low half counts.
pub fn from_number(number: u128, v4: bool) -> IpAddr {
    if v4 { IpAddr::V4((number as u32).into()) } else { IpAddr::V6(number.into()) }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The bits past the length.
fn mask(address: IpAddr, length: u8) -> u128 {
    let rest = u32::from(bits(address) - length);
    1u128.checked_shl(rest).map_or(u128::MAX, |bit| bit - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_ends() {
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
        for bad in ["10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/129", "10.0.0.0/-1", ""] {
            assert_eq!(Cidr::parse(bad), None, "{bad}");
        }
    }
}
