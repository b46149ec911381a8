//! Validation of the options, by upstream's rules. Upstream: `startNodeIpamController`.

use super::super::Options;
use evenkeel_api::cidr::Cidr;

/// Default prefix length of a node's IPv4 CIDR.
const IPV4: u8 = 24;
/// Default prefix length of a node's IPv6 CIDR.
const IPV6: u8 = 64;

/// CIDR of an IP family, and the prefix length of nodes' CIDRs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) range: Cidr,
    pub(crate) node_length: u8,
}

/// CIDRs to allocate from, and the Services' CIDRs, which are not allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) families: Vec<Family>,
    pub(crate) services: Vec<Cidr>,
}

impl Config {
    /// Validates the options, or returns the error.
    pub(crate) fn new(options: &Options) -> Result<Self, String> {
        let ranges = cluster(&options.cluster)?;
        let families = ranges.iter().map(|range| family(*range, ranges.len() > 1, options));
        Ok(Self { families: families.collect::<Result<_, _>>()?, services: services(options)? })
    }
}

fn cluster(text: &str) -> Result<Vec<Cidr>, String> {
    if text.trim().is_empty() {
        return Err("must specify --cluster-cidr if --allocate-node-cidrs is set".to_owned());
    }
    let parse = |(index, text): (usize, &str)| {
        Cidr::parse(text).ok_or_else(|| format!("--cluster-cidr: invalid CIDR[{index}]: {text:?}"))
    };
    let ranges: Vec<Cidr> =
        text.trim().split(',').enumerate().map(parse).collect::<Result<_, _>>()?;
    let both = ranges.iter().any(Cidr::is_ipv4) && ranges.iter().any(|range| !range.is_ipv4());
    match ranges.len() {
        2.. if !both => Err("--cluster-cidr has several ranges and they are not configured as dual stack (at least one from each IP family)".to_owned()),
        count @ 3.. => Err(format!("--cluster-cidr has {count} ranges, more than max allowed of 2")),
        _ => Ok(ranges),
    }
}

/// Returns the Services' CIDRs. Ignores a text that is not a CIDR.
fn services(options: &Options) -> Result<Vec<Cidr>, String> {
    let services: Vec<Cidr> = options.services.split(',').filter_map(Cidr::parse).collect();
    match services[..] {
        [one, two] if one.is_ipv4() == two.is_ipv4() => {
            Err("--service-cluster-ip-range: both ranges are of one IP family".to_owned())
        }
        _ => Ok(services),
    }
}

fn family(range: Cidr, dual: bool, options: &Options) -> Result<Family, String> {
    let (mask, v4, v6) = (options.mask, options.mask_ipv4, options.mask_ipv6);
    let problem = match (dual, mask != 0) {
        (true, true) => {
            Some("usage of --node-cidr-mask-size is not allowed with dual-stack clusters")
        }
        (false, true) if v4 != 0 || v6 != 0 => Some(
            "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is set. For dual-stack clusters please unset it and use IPFamily specific flags",
        ),
        (false, false) if v4 != 0 && !range.is_ipv4() => Some(
            "usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster",
        ),
        (false, false) if v6 != 0 && range.is_ipv4() => Some(
            "usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster",
        ),
        _ => None,
    };
    if let Some(problem) = problem {
        return Err(problem.to_owned());
    }
    let (own, default, bits) = if range.is_ipv4() { (v4, IPV4, 32) } else { (v6, IPV6, 128) };
    let given = [mask, own].into_iter().find(|given| *given != 0);
    let node_length = match given {
        None => default,
        Some(given) => u8::try_from(given)
            .ok()
            .filter(|length| *length <= bits)
            .ok_or_else(|| format!("a node's prefix cannot have {given} bits"))?,
    };
    if range.length() > node_length {
        return Err("invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size configured for CIDR family".to_owned());
    }
    Ok(Family { range, node_length })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the node mask size of each family. The mask size flags are for any family, IPv4 and IPv6; 0 is unset.
    fn config(cluster: &str, services: &str, masks: [i64; 3]) -> Result<Vec<u8>, String> {
        let [mask, mask_ipv4, mask_ipv6] = masks;
        let (cluster, services) = (cluster.to_owned(), services.to_owned());
        let options = Options { enabled: true, cluster, services, mask, mask_ipv4, mask_ipv6 };
        let config = Config::new(&options)?;
        Ok(config.families.iter().map(|family| family.node_length).collect())
    }

    #[test]
    fn each_family_has_its_node_mask_size() {
        // Cluster CIDRs, the mask size flags, and the node mask size of each family.
        let table: [(&str, [i64; 3], &[u8]); 7] = [
            ("10.244.0.0/16", [0, 0, 0], &[24]),
            ("10.244.0.0/16", [26, 0, 0], &[26]),
            ("10.244.0.0/16", [0, 25, 0], &[25]),
            ("fd00::/48", [0, 0, 0], &[64]),
            ("fd00::/48", [0, 0, 60], &[60]),
            ("10.244.0.0/16,fd00::/56", [0, 0, 0], &[24, 64]),
            ("fd00::/56,10.244.0.0/16", [0, 20, 70], &[70, 20]),
        ];
        for (cluster, masks, want) in table {
            assert_eq!(config(cluster, "", masks).as_deref(), Ok(want), "{cluster} {masks:?}");
        }
    }

    #[test]
    fn invalid_flags_are_rejected() {
        for (cluster, services, masks) in [
            ("", "", [0, 0, 0]),
            ("10.0.0.0", "", [0, 0, 0]),
            ("10.0.0.0/16,10.1.0.0/16", "", [0, 0, 0]),
            ("10.0.0.0/16,fd00::/56,10.1.0.0/16", "", [0, 0, 0]),
            ("10.0.0.0/16,fd00::/56", "", [24, 0, 0]),
            ("10.0.0.0/16", "", [24, 24, 0]),
            ("10.0.0.0/16", "", [0, 0, 64]),
            ("fd00::/56", "", [0, 24, 0]),
            ("10.0.0.0/25", "", [0, 0, 0]),
            ("10.0.0.0/16", "", [99, 0, 0]),
            ("10.0.0.0/16", "10.96.0.0/16,10.97.0.0/16", [0, 0, 0]),
        ] {
            assert!(
                config(cluster, services, masks).is_err(),
                "{cluster:?} {services:?} {masks:?}"
            );
        }
        assert!(config("10.0.0.0/16", "nonsense,,", [0, 0, 0]).is_ok());
    }
}
