//! Command-line options of the controller.

use crate::options::Flags;

/// Options, as they were given: what they mean together is found out when the controller starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether nodes are given ranges; `--allocate-node-cidrs`.
    pub enabled: bool,
    /// Where they are taken from, one of each family, with commas between; `--cluster-cidr`.
    pub cluster: String,
    /// What services have and nodes must not get, the same way; `--service-cluster-ip-range`.
    pub services: String,
    /// Length of a node's prefix in a cluster of one family, 0 for the family's default; `--node-cidr-mask-size`.
    pub mask: i64,
    /// The same for IPv4; `--node-cidr-mask-size-ipv4`.
    pub mask_ipv4: i64,
    /// The same for IPv6; `--node-cidr-mask-size-ipv6`.
    pub mask_ipv6: i64,
}

impl Options {
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self {
            enabled: flags.bool("allocate-node-cidrs"),
            cluster: flags.text("cluster-cidr"),
            services: flags.text("service-cluster-ip-range"),
            mask: flags.int("node-cidr-mask-size"),
            mask_ipv4: flags.int("node-cidr-mask-size-ipv4"),
            mask_ipv6: flags.int("node-cidr-mask-size-ipv6"),
        }
    }
}
