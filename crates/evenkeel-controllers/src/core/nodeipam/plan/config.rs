//! Validates the options by upstream's rules. Upstream: `startNodeIpamController`.

use super::super::Options;
use evenkeel_api::cidr::Cidr;

/// Default prefix length of a node's IPv4 CIDR.
const DEFAULT_IPV4_LENGTH: u8 = 24;
/// Default prefix length of a node's IPv6 CIDR.
const DEFAULT_IPV6_LENGTH: u8 = 64;

/// Cluster CIDR of an IP family, and the prefix length of the nodes' CIDRs in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Family {
    /// The cluster CIDR.
    pub(crate) range: Cidr,
    /// Prefix length of the nodes' CIDRs.
    pub(crate) node_length: u8,
}

/// The cluster CIDRs, and the Services' CIDRs, which the allocator must not give to nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The cluster CIDRs, at most one of each IP family.
    pub(crate) families: Vec<Family>,
    /// CIDRs of the Services.
    pub(crate) services: Vec<Cidr>,
}

impl Config {
    /// Validates the options, or returns the error.
    pub(crate) fn new(options: &Options) -> Result<Self, String> {
        let ranges = parse_cluster_cidrs(&options.cluster)?;
        let is_dual_stack = ranges.len() > 1;
        let families = ranges.iter().map(|range| family(*range, is_dual_stack, options));
        let families = families.collect::<Result<_, _>>()?;
        Ok(Self { families, services: parse_service_cidrs(&options.services)? })
    }
}

/// Parses the flag `--cluster-cidr`: one range, or one range of each IP family.
fn parse_cluster_cidrs(text: &str) -> Result<Vec<Cidr>, String> {
    if text.trim().is_empty() {
        return Err("must specify --cluster-cidr if --allocate-node-cidrs is set".to_owned());
    }
    let parse = |(index, text): (usize, &str)| {
        Cidr::parse(text).ok_or_else(|| format!("--cluster-cidr: invalid CIDR[{index}]: {text:?}"))
    };
    let ranges: Vec<Cidr> =
        text.trim().split(',').enumerate().map(parse).collect::<Result<_, _>>()?;
    let has_both_families =
        ranges.iter().any(Cidr::is_ipv4) && ranges.iter().any(|range| !range.is_ipv4());
    if ranges.len() > 1 && !has_both_families {
        return Err("--cluster-cidr has several ranges and they are not configured as dual stack (at least one from each IP family)".to_owned());
    }
    if ranges.len() > 2 {
        let count = ranges.len();
        return Err(format!("--cluster-cidr has {count} ranges, more than max allowed of 2"));
    }
    Ok(ranges)
}

/// Parses the Services' CIDRs. Ignores invalid CIDRs.
fn parse_service_cidrs(text: &str) -> Result<Vec<Cidr>, String> {
    let ranges: Vec<Cidr> = text.split(',').filter_map(Cidr::parse).collect();
    match ranges[..] {
        [first, second] if first.is_ipv4() == second.is_ipv4() => {
            Err("--service-cluster-ip-range: both ranges are of one IP family".to_owned())
        }
        _ => Ok(ranges),
    }
}

/// Returns a cluster CIDR with the prefix length that the flags set for its IP family.
fn family(range: Cidr, is_dual_stack: bool, options: &Options) -> Result<Family, String> {
    if let Some(problem) = mask_problem(range, is_dual_stack, options) {
        return Err(problem.to_owned());
    }
    let (family_mask, default_length, max_length) = if range.is_ipv4() {
        (options.mask_ipv4, DEFAULT_IPV4_LENGTH, 32)
    } else {
        (options.mask_ipv6, DEFAULT_IPV6_LENGTH, 128)
    };
    // 0 stands for a flag that is not set.
    let mask = [options.mask, family_mask].into_iter().find(|mask| *mask != 0);
    let node_length = match mask {
        None => default_length,
        Some(mask) => u8::try_from(mask)
            .ok()
            .filter(|length| *length <= max_length)
            .ok_or_else(|| format!("a node's prefix cannot have {mask} bits"))?,
    };
    if range.length() > node_length {
        return Err("invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size configured for CIDR family".to_owned());
    }
    Ok(Family { range, node_length })
}

/// Returns the error if the node mask sizes contradict each other or the cluster's IP families.
fn mask_problem(range: Cidr, is_dual_stack: bool, options: &Options) -> Option<&'static str> {
    let has_mask = options.mask != 0;
    let has_mask_ipv4 = options.mask_ipv4 != 0;
    let has_mask_ipv6 = options.mask_ipv6 != 0;
    if is_dual_stack {
        return has_mask
            .then_some("usage of --node-cidr-mask-size is not allowed with dual-stack clusters");
    }
    if has_mask {
        return (has_mask_ipv4 || has_mask_ipv6).then_some(
            "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is set. For dual-stack clusters please unset it and use IPFamily specific flags",
        );
    }
    if has_mask_ipv4 && !range.is_ipv4() {
        return Some(
            "usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster",
        );
    }
    (has_mask_ipv6 && range.is_ipv4()).then_some(
        "usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster",
    )
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
