//! Command-line options of the node lifecycle controller.

use crate::options::Flags;
use std::time::Duration;

/// Options of the node lifecycle controller. The defaults are upstream's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Period of the monitor's passes over all nodes. Flag `--node-monitor-period`. Default: 5 s.
    pub monitor_period: Duration,
    /// Time without a status update or a lease renewal after which a node is unreachable. Flag
    /// `--node-monitor-grace-period`. Default: 50 s.
    pub monitor_grace_period: Duration,
    /// Grace period of a node whose kubelet has never posted a status. Flag `--node-startup-grace-period`. Default:
    /// 60 s.
    pub startup_grace_period: Duration,
    /// Nodes of a zone that are tainted for eviction, per second. Flag `--node-eviction-rate`. Default: 0.1.
    pub eviction_rate: f32,
    /// Eviction rate of a large zone in partial disruption. Flag `--secondary-node-eviction-rate`. Default: 0.01.
    pub secondary_eviction_rate: f32,
    /// Number of nodes above which a zone is large: partial disruption stops evictions in smaller zones. Flag
    /// `--large-cluster-size-threshold`. Default: 50.
    pub large_cluster_size: usize,
    /// Fraction of nodes that are not ready from which a zone is in partial disruption. Flag
    /// `--unhealthy-zone-threshold`. Default: 0.55.
    pub unhealthy_zone_threshold: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            monitor_period: Duration::from_secs(5),
            monitor_grace_period: Duration::from_secs(50),
            startup_grace_period: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_cluster_size: 50,
            unhealthy_zone_threshold: 0.55,
        }
    }
}

impl Options {
    /// Reads the options from the command line's flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "upstream's flags have 32 bits")]
        let float = |flag| flags.float(flag) as f32;
        Self {
            monitor_period: flags.duration("node-monitor-period"),
            monitor_grace_period: flags.duration("node-monitor-grace-period"),
            startup_grace_period: flags.duration("node-startup-grace-period"),
            eviction_rate: float("node-eviction-rate"),
            secondary_eviction_rate: float("secondary-node-eviction-rate"),
            // A negative threshold makes every zone large.
            large_cluster_size: usize::try_from(flags.int("large-cluster-size-threshold"))
                .unwrap_or_default(),
            unhealthy_zone_threshold: float("unhealthy-zone-threshold"),
        }
    }
}
