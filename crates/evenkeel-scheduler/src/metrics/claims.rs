//! Metrics of ResourceClaims and volumes.

use evenkeel_runtime::metrics::{counters, exponential, histograms};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

/// Handles of the registered metrics. Clones share the metrics.
#[derive(Clone)]
pub(crate) struct ClaimMetrics {
    pub(super) creations: IntCounterVec,
    pub(super) conditional_waits: IntCounterVec,
    pub(super) wait_seconds: HistogramVec,
    pub(super) volume_errors: IntCounterVec,
}

/// Value of the label `status`: result of a wait for device binding conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceWaitResult {
    Ready,
    Failed,
    TimedOut,
    Error,
}

impl DeviceWaitResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "success",
            Self::Failed => "failure",
            Self::TimedOut => "timeout",
            Self::Error => "error",
        }
    }
}

/// Value of the label `operation`: the stage of volume scheduling that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeStage {
    /// Filter and PreFilter.
    Predicate,
    /// Reserve, when the claims are assumed.
    Assume,
    /// PreBind, when the claims are written.
    Bind,
}

impl VolumeStage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Predicate => "predicate",
            Self::Assume => "assume",
            Self::Bind => "bind",
        }
    }
}

impl ClaimMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let driver_labels = &["profile", "driver", "status"];
        Self {
            creations: counters(
                registry,
                "dynamic_resource_allocation_resourceclaim_creates_total",
                "Number of ResourceClaims creation requests, categorized by creation status, admin access, and owning API group and kind (either Pod or scheduling.k8s.io/PodGroup)",
                &["status", "admin_access", "owner_api_group", "owner_api_kind"],
            ),
            conditional_waits: counters(
                registry,
                "scheduler_dra_bindingconditions_allocations_total",
                "Number of allocations using devices with BindingConditions, counted per driver per scheduling attempt",
                driver_labels,
            ),
            wait_seconds: histograms(
                registry,
                "scheduler_dra_bindingconditions_wait_duration_seconds",
                "Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
                &exponential(0.1, 2.0, 14),
                driver_labels,
            ),
            volume_errors: counters(
                registry,
                "scheduler_volume_scheduling_stage_error_total",
                "Volume scheduling stage error count",
                &["operation"],
            ),
        }
    }

    /// Counts the creation of a claim for extended resources.
    pub(crate) fn count_creation(&self, succeeded: bool) {
        let status = if succeeded { "success" } else { "failure" };
        self.creations.with_label_values(&[status, "false", "", "Pod"]).inc();
    }

    /// Records the end of the wait for a device. A device with binding conditions is also counted.
    pub(crate) fn observe_device_wait(
        &self,
        profile: &str,
        driver: &str,
        has_binding_conditions: bool,
        result: DeviceWaitResult,
        took: Duration,
    ) {
        let labels = &[profile, driver, result.as_str()];
        self.wait_seconds.with_label_values(labels).observe(took.as_secs_f64());
        if has_binding_conditions {
            self.conditional_waits.with_label_values(labels).inc();
        }
    }

    /// Counts a failed stage of volume scheduling.
    pub(crate) fn count_volume_error(&self, stage: VolumeStage) {
        self.volume_errors.with_label_values(&[stage.as_str()]).inc();
    }
}
