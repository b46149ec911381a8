//! IP addresses and CIDRs: the functions of CEL's libraries `ip` and `cidr`.
//!
//! Upstream: `cel/library/ip.go`, `cel/library/cidr.go`.

use std::net::IpAddr;

use evenkeel_api::cidr::parse_canonical_prefix_length;
use evenkeel_api::quote::quote;

use super::{Outcome, addresses};
use crate::value::Val;

/// Address and prefix length of a CIDR.
type Cidr = (IpAddr, u8);

/// Calls a function that converts or tests one string; `None` for other names and arguments.
pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Str(text)] = args else { return None };
    Some(match name {
        "ip" => parse_ip_addr(text).map(Val::Ip),
        "isIP" => Ok(Val::Bool(parse_ip_addr(text).is_ok())),
        "ip.isCanonical" => parse_ip_addr(text).map(|ip| Val::Bool(ip.to_string() == **text)),
        "cidr" => parse_cidr(text).map(|(ip, length)| Val::Cidr(ip, length)),
        "isCIDR" => Ok(Val::Bool(parse_cidr(text).is_ok())),
        _ => return None,
    })
}

/// Parses an IP address. An address with a zone, and an IPv4-mapped IPv6 address (`::ffff:10.0.0.1`), are errors.
///
/// Upstream: `parseIPAddr`.
fn parse_ip_addr(text: &str) -> Result<IpAddr, String> {
    let quoted = quote(text);
    if let Some(why) = addresses::parse_error(text) {
        return Err(format!(
            "IP Address {quoted} parse error during conversion from string: {why}"
        ));
    }
    if text.contains('%') {
        return Err(format!("IP address {quoted} with zone value is not allowed"));
    }
    let is_mapped = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let not_allowed = || format!("IPv4-mapped IPv6 address {quoted} is not allowed");
    text.parse().ok().filter(|ip| !is_mapped(ip)).ok_or_else(not_allowed)
}

/// Parses a CIDR. The prefix length has no sign and no leading zeros. Keeps the host bits.
///
/// Upstream: `parseCIDR`.
fn parse_cidr(text: &str) -> Result<Cidr, String> {
    const CONTEXT: &str = "network address parse error during conversion from string: ";
    let prefix_error =
        |why: &str| format!("{CONTEXT}{CONTEXT}netip.ParsePrefix({}): {why}", quote(text));
    let (address, length) = text.rsplit_once('/').ok_or_else(|| prefix_error("no '/'"))?;
    if let Some(why) = addresses::parse_error(address) {
        return Err(prefix_error(&why));
    }
    if address.contains('%') {
        return Err(prefix_error("IPv6 zones cannot be present in a prefix"));
    }
    let is_number = length.bytes().all(|byte| byte.is_ascii_digit())
        && (length.len() == 1 || !length.starts_with('0'));
    if !is_number || length.is_empty() || length.len() > 18 {
        return Err(prefix_error(&format!("bad bits after slash: {}", quote(length))));
    }
    let parsed: IpAddr = address.parse().map_err(|_| prefix_error("unable to parse IP"))?;
    let length = parse_canonical_prefix_length(parsed, length)
        .ok_or_else(|| prefix_error("prefix length out of range"))?;
    let parsed = parse_ip_addr(address)
        .map_err(|_| format!("{CONTEXT}IPv4-mapped IPv6 address {} is not allowed", quote(text)))?;
    Ok((parsed, length))
}

/// Returns the number of bits of an address: 32 or 128.
fn bit_length(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Clears all bits of the address after the prefix.
fn masked(ip: IpAddr, length: u8) -> IpAddr {
    // An IPv4 address takes the upper bits, so that one mask fits both families.
    let mask = if length == 0 { 0 } else { u128::MAX << (128 - u32::from(length)) };
    match ip {
        IpAddr::V4(v4) => {
            let number = (u128::from(u32::from(v4)) << 96) & mask;
            IpAddr::V4(u32::try_from(number >> 96).unwrap_or_default().into())
        }
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & mask).into()),
    }
}

/// Returns whether `inner` lies within `outer`. An address is a CIDR whose prefix length is its [`bit_length`].
///
/// Upstream: `cidrContainsCIDR`, `cidrContainsIP`.
fn contains(outer: Cidr, inner: Cidr) -> bool {
    outer.0.is_ipv4() == inner.0.is_ipv4()
        && outer.1 <= inner.1
        && masked(outer.0, outer.1) == masked(inner.0, outer.1)
}

/// Calls a method of an IP address or a CIDR; `None` for other names and arguments.
pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::Ip(address)] => ip_method(name, *address).map(Ok),
        [Val::Cidr(address, length), rest @ ..] => cidr_method(name, (*address, *length), rest),
        _ => None,
    }
}

/// Calls a method of an IP address. The methods behave like those of Go's `netip.Addr`.
fn ip_method<'a>(name: &str, ip: IpAddr) -> Option<Val<'a>> {
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

/// Calls a method of a CIDR with its arguments. `containsIP` and `containsCIDR` also take strings.
fn cidr_method<'a>(name: &str, cidr: Cidr, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let contains_ip = |ip: IpAddr| Val::Bool(contains(cidr, (ip, bit_length(ip))));
    let contains_cidr = |inner: Cidr| Val::Bool(contains(cidr, inner));
    Some(match (name, args) {
        ("ip", []) => Ok(Val::Ip(cidr.0)),
        ("masked", []) => Ok(Val::Cidr(masked(cidr.0, cidr.1), cidr.1)),
        ("prefixLength", []) => Ok(Val::Int(i64::from(cidr.1))),
        ("containsIP", [Val::Ip(ip)]) => Ok(contains_ip(*ip)),
        ("containsIP", [Val::Str(text)]) => parse_ip_addr(text).map(contains_ip),
        ("containsCIDR", [Val::Cidr(ip, length)]) => Ok(contains_cidr((*ip, *length))),
        ("containsCIDR", [Val::Str(text)]) => parse_cidr(text).map(contains_cidr),
        _ => return None,
    })
}
