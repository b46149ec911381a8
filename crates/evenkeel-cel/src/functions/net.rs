//! IP addresses and ranges of them.

use std::net::IpAddr;

use super::Outcome;
use crate::value::Val;

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Str(text)] = args else { return None };
    Some(match name {
        "ip" => ip(text).map(Val::Ip).ok_or_else(|| {
            format!(
                "IP Address {} parse error during conversion from string",
                evenkeel_api::quote::quote(text)
            )
        }),
        "isIP" => Ok(Val::Bool(ip(text).is_some())),
        "ip.isCanonical" => match ip(text) {
            Some(ip) => Ok(Val::Bool(ip.to_string() == **text)),
            None => Err(format!("IP Address {} parse error", evenkeel_api::quote::quote(text))),
        },
        "cidr" => cidr(text).map(|(ip, bits)| Val::Cidr(ip, bits)).ok_or_else(|| {
            format!("network address parse error during conversion from string: {text}")
        }),
        "isCIDR" => Ok(Val::Bool(cidr(text).is_some())),
        _ => return None,
    })
}

/// An address; those of version 4 in the form of version 6 are none.
fn ip(text: &str) -> Option<IpAddr> {
    match text.parse().ok()? {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
        ip => Some(ip),
    }
}

fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let (address, bits) = (ip(address)?, bits.parse().ok()?);
    (bits <= width(address)).then_some((address, bits))
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// The address as a number, in the upper bits.
fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    let mask = if bits == 0 { 0 } else { u128::MAX << (128 - u32::from(bits)) };
    let number = number(ip) & mask;
    match ip {
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(number >> 96).unwrap_or_default().into()),
        IpAddr::V6(_) => IpAddr::V6(number.into()),
    }
}

fn holds(network: (IpAddr, u8), inner: (IpAddr, u8)) -> bool {
    network.0.is_ipv4() == inner.0.is_ipv4()
        && network.1 <= inner.1
        && masked(network.0, network.1) == masked(inner.0, network.1)
}

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::Ip(address)] => address_part(name, *address).map(Ok),
        [Val::Cidr(address, bits), rest @ ..] => range(name, (*address, *bits), rest),
        _ => None,
    }
}

fn address_part<'a>(name: &str, ip: IpAddr) -> Option<Val<'a>> {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let link_local_multicast = match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    Some(match name {
        "family" => Val::Int(if ip.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Val::Bool(ip.is_unspecified()),
        "isLoopback" => Val::Bool(ip.is_loopback()),
        "isLinkLocalMulticast" => Val::Bool(link_local_multicast),
        "isLinkLocalUnicast" => Val::Bool(link_local),
        "isGlobalUnicast" => Val::Bool(
            !ip.is_unspecified()
                && !ip.is_loopback()
                && !ip.is_multicast()
                && !link_local
                && !broadcast,
        ),
        _ => return None,
    })
}

fn range<'a>(name: &str, network: (IpAddr, u8), rest: &[Val<'a>]) -> Option<Outcome<'a>> {
    let one = |ip: IpAddr| (ip, width(ip));
    Some(Ok(match (name, rest) {
        ("ip", []) => Val::Ip(network.0),
        ("masked", []) => Val::Cidr(masked(network.0, network.1), network.1),
        ("prefixLength", []) => Val::Int(i64::from(network.1)),
        ("containsIP", [Val::Ip(ip)]) => Val::Bool(holds(network, one(*ip))),
        ("containsIP", [Val::Str(text)]) => match ip(text) {
            Some(ip) => Val::Bool(holds(network, one(ip))),
            None => return Some(Err(format!("IP Address {text} parse error"))),
        },
        ("containsCIDR", [Val::Cidr(ip, bits)]) => Val::Bool(holds(network, (*ip, *bits))),
        ("containsCIDR", [Val::Str(text)]) => match cidr(text) {
            Some(inner) => Val::Bool(holds(network, inner)),
            None => return Some(Err(format!("network address parse error: {text}"))),
        },
        _ => return None,
    }))
}
