//! Command-line options of the controller.

use crate::options::Flags;

/// Options as given. Their combination is validated when the controller starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether CIDRs are allocated. Flag `--allocate-node-cidrs`. Default: false.
    pub enabled: bool,
    /// CIDRs of all pods, comma-separated, one for each IP family. Flag `--cluster-cidr`.
    pub cluster: String,
    /// CIDRs of Services, comma-separated, which nodes must not get. Flag `--service-cluster-ip-range`. Default: none.
    pub services: String,
    /// Prefix length of a node's CIDR in a single-stack cluster, 0 for the family's default. Flag
    /// `--node-cidr-mask-size`.
    pub mask: i64,
    /// Prefix length of a node's IPv4 CIDR, 0 for the default, instead of `mask`. Flag `--node-cidr-mask-size-ipv4`.
    pub mask_ipv4: i64,
    /// Prefix length of a node's IPv6 CIDR, 0 for the default, instead of `mask`. Flag `--node-cidr-mask-size-ipv6`.
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
