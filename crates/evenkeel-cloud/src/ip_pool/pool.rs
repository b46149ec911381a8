//! Pools of load balancer addresses.

use super::config::ConfigError;
use evenkeel_api::cidr::{Cidr, from_number, number};
use std::net::IpAddr;

/// Range of addresses of one family, including the first and the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    first: IpAddr,
    last: IpAddr,
}

/// Named pool. Its ranges are tried in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) ranges: Vec<Range>,
}

impl Range {
    /// Parses `address`, `first-last` or `address/length`. A network's first address is left out, and for IPv4
    /// also its last one (broadcast), unless no address would remain.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let invalid = || ConfigError::Range(text.to_owned());
        let text = text.trim();
        if let Some(cidr) = Cidr::parse(text) {
            return Ok(Self::hosts(&cidr));
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first: IpAddr = first.trim().parse().map_err(|_| invalid())?;
        let last: IpAddr = last.trim().parse().map_err(|_| invalid())?;
        if first.is_ipv4() != last.is_ipv4() || first > last {
            return Err(invalid());
        }
        Ok(Self { first, last })
    }

    /// Returns the addresses of a network without its first and, for IPv4, its last one. A network of one or two
    /// addresses keeps them.
    fn hosts(cidr: &Cidr) -> Self {
        let (first, last) = (cidr.first(), cidr.last());
        let is_v4 = first.is_ipv4();
        let max_prefix_length = if is_v4 { 30 } else { 126 };
        if cidr.length() > max_prefix_length {
            return Self { first, last };
        }
        let last = if is_v4 { from_number(number(last) - 1, is_v4) } else { last };
        Self { first: from_number(number(first) + 1, is_v4), last }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.is_ipv4() && self.first <= address && address <= self.last
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }

    /// Returns the addresses in ascending order.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let is_v4 = self.is_ipv4();
        (number(self.first)..=number(self.last)).map(move |value| from_number(value, is_v4))
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last {
            return self.first.fmt(f);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl Pool {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// Returns the addresses of a family, in ascending order within each range.
    pub(super) fn addresses(&self, is_v4: bool) -> impl Iterator<Item = IpAddr> {
        self.ranges.iter().filter(move |range| range.is_ipv4() == is_v4).flat_map(Range::addresses)
    }

    pub(super) fn has_family(&self, is_v4: bool) -> bool {
        self.ranges.iter().any(|range| range.is_ipv4() == is_v4)
    }
}
