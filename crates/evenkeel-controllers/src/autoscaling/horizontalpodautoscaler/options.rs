//! What the autoscaler can be told.

use crate::options::Flags;
use std::time::Duration;

/// Options of the controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Number of autoscalers processed concurrently; `--concurrent-horizontal-pod-autoscaler-syncs`.
    pub concurrent_syncs: usize,
    /// How often each is looked at; `--horizontal-pod-autoscaler-sync-period`.
    pub sync_period: Duration,
    /// How long a recommendation keeps it from going below; `--horizontal-pod-autoscaler-downscale-stabilization`.
    pub downscale_stabilization: Duration,
    /// How far a metric may be off without anything being done, as a share; `--horizontal-pod-autoscaler-tolerance`.
    pub tolerance: f64,
    /// How long after its start what a pod uses of the CPU may be its start's; `--horizontal-pod-autoscaler-cpu-initialization-period`.
    pub cpu_initialization_period: Duration,
    /// How long after its start a change of a pod's readiness is its first;
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`.
    pub initial_readiness_delay: Duration,
    /// Whether it may scale to zero and back; `HPAScaleToZero`.
    pub to_zero: bool,
    /// Whether a change of the spec is looked at at once, and its generation noted; `HPAGeneration`.
    pub by_generation: bool,
    /// Whether an autoscaler may have a tolerance of its own; `HPAConfigurableTolerance`.
    pub own_tolerance: bool,
    /// Whether requests of the pod as a whole count; `PodLevelResources`.
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
            concurrent_syncs: flags.workers("concurrent-horizontal-pod-autoscaler-syncs"),
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
