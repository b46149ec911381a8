//! What the controller can be told.

use crate::options::Flags;
use std::time::Duration;

/// Options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// How often all nodes are looked at; `--node-monitor-period`.
    pub monitor_period: Duration,
    /// How long a node may be silent; `--node-monitor-grace-period`.
    pub monitor_grace_period: Duration,
    /// The same for one that has never said how it is; `--node-startup-grace-period`.
    pub startup_grace_period: Duration,
    /// How many nodes of a zone lose their pods a second; `--node-eviction-rate`.
    pub eviction_rate: f32,
    /// The same in a large zone of which too many nodes are not ready; `--secondary-node-eviction-rate`.
    pub secondary_eviction_rate: f32,
    /// Zones of more nodes are large; in others too many nodes that are not ready keep all their pods;
    /// `--large-cluster-size-threshold`.
    pub large_cluster_size: usize,
    /// Which part of a zone's nodes is too many; `--unhealthy-zone-threshold`.
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
    /// What the flags say.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "upstream's flags have 32 bits")]
        let float = |flag| flags.float(flag) as f32;
        Self {
            monitor_period: flags.duration("node-monitor-period"),
            monitor_grace_period: flags.duration("node-monitor-grace-period"),
            startup_grace_period: flags.duration("node-startup-grace-period"),
            eviction_rate: float("node-eviction-rate"),
            secondary_eviction_rate: float("secondary-node-eviction-rate"),
            // Every zone is larger than a negative number.
            large_cluster_size: usize::try_from(flags.int("large-cluster-size-threshold"))
                .unwrap_or_default(),
            unhealthy_zone_threshold: float("unhealthy-zone-threshold"),
        }
    }
}
