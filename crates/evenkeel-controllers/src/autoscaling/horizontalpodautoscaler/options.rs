//! Command-line options of the horizontal pod autoscaler.

use crate::options::Flags;
use std::time::Duration;

/// Options of the controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Number of autoscalers processed concurrently; `--concurrent-horizontal-pod-autoscaler-syncs`.
    pub concurrent_syncs: usize,
    /// Period of reconciliations; `--horizontal-pod-autoscaler-sync-period`, default 15s.
    pub sync_period: Duration,
    /// Scale-down stabilization window without `behavior`; `--horizontal-pod-autoscaler-downscale-stabilization`,
    /// default 5m.
    pub downscale_stabilization: Duration,
    /// Deviation from the target, as a fraction, that causes no scaling; `--horizontal-pod-autoscaler-tolerance`,
    /// default 0.1.
    pub tolerance: f64,
    /// Time after a pod's start during which its CPU samples may be skipped;
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`, default 5m.
    pub cpu_initialization_period: Duration,
    /// Time after a pod's start during which changes of readiness count as initial;
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`, default 30s.
    pub initial_readiness_delay: Duration,
    /// Whether scaling to and from zero is possible; gate `HPAScaleToZero`.
    pub to_zero: bool,
    /// Whether a change of the spec is reconciled at once and `observedGeneration` is set; gate `HPAGeneration`.
    pub by_generation: bool,
    /// Whether `behavior` may have tolerances; gate `HPAConfigurableTolerance`.
    pub own_tolerance: bool,
    /// Whether pod-level requests count; gate `PodLevelResources`.
    pub pod_level: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrent_syncs: 5,
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(300),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
            to_zero: true,
            by_generation: true,
            own_tolerance: true,
            pod_level: true,
        }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        let time = |name: &str| flags.duration(&format!("horizontal-pod-autoscaler-{name}"));
        Self {
            concurrent_syncs: flags.positive("concurrent-horizontal-pod-autoscaler-syncs"),
            sync_period: time("sync-period"),
            downscale_stabilization: time("downscale-stabilization"),
            tolerance: flags.float("horizontal-pod-autoscaler-tolerance"),
            cpu_initialization_period: time("cpu-initialization-period"),
            initial_readiness_delay: time("initial-readiness-delay"),
            to_zero: flags.enabled("HPAScaleToZero"),
            by_generation: flags.enabled("HPAGeneration"),
            own_tolerance: flags.enabled("HPAConfigurableTolerance"),
            pod_level: flags.enabled("PodLevelResources"),
        }
    }
}
