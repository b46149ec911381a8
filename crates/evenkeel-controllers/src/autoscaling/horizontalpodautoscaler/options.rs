//! Command-line options of the horizontal pod autoscaler.

use crate::options::Flags;
use std::time::Duration;

/// Options of the controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Number of autoscalers that are reconciled concurrently. Flag `--concurrent-horizontal-pod-autoscaler-syncs`.
    pub concurrent_syncs: usize,
    /// Period of reconciliations. Flag `--horizontal-pod-autoscaler-sync-period`. Default: 15 s.
    pub sync_period: Duration,
    /// Scale-down stabilization window without `behavior`. Flag `--horizontal-pod-autoscaler-downscale-stabilization`.
    /// Default: 5 min.
    pub downscale_stabilization: Duration,
    /// Largest deviation from the target, as a fraction, that causes no scaling. Flag
    /// `--horizontal-pod-autoscaler-tolerance`. Default: 0.1.
    pub tolerance: f64,
    /// Time after a pod's start during which its CPU samples may be skipped. Flag
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`. Default: 5 min.
    pub cpu_initialization_period: Duration,
    /// Time after a pod's start during which changes of readiness count as initial. Flag
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`. Default: 30 s.
    pub initial_readiness_delay: Duration,
    /// Whether scaling to and from zero is possible. Feature gate `HPAScaleToZero`.
    pub scale_to_zero: bool,
    /// Whether a change of the spec is reconciled immediately and `observedGeneration` is set. Feature gate
    /// `HPAGeneration`.
    pub observe_generation: bool,
    /// Whether the tolerances of `behavior` count. Feature gate `HPAConfigurableTolerance`.
    pub configurable_tolerance: bool,
    /// Whether pod-level requests count. Feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
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
            scale_to_zero: true,
            observe_generation: true,
            configurable_tolerance: true,
            pod_level_resources: true,
        }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        let duration = |name: &str| flags.duration(&format!("horizontal-pod-autoscaler-{name}"));
        Self {
            concurrent_syncs: flags.positive("concurrent-horizontal-pod-autoscaler-syncs"),
            sync_period: duration("sync-period"),
            downscale_stabilization: duration("downscale-stabilization"),
            tolerance: flags.float("horizontal-pod-autoscaler-tolerance"),
            cpu_initialization_period: duration("cpu-initialization-period"),
            initial_readiness_delay: duration("initial-readiness-delay"),
            scale_to_zero: flags.enabled("HPAScaleToZero"),
            observe_generation: flags.enabled("HPAGeneration"),
            configurable_tolerance: flags.enabled("HPAConfigurableTolerance"),
            pod_level_resources: flags.enabled("PodLevelResources"),
        }
    }
}
