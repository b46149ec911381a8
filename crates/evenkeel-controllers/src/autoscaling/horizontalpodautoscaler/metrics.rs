//! Metrics of the horizontal pod autoscaler, with upstream's names. Upstream: `monitor` package.

use super::reconcile::ScalingAction;
use evenkeel_runtime::metrics::{counters, exponential, gauges, histograms, register};
use prometheus::{Gauge, GaugeVec, HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

/// Counters, gauges and histograms of the controller.
pub(super) struct Metrics {
    reconciliations: IntCounterVec,
    reconciliation_seconds: HistogramVec,
    computations: IntCounterVec,
    computation_seconds: HistogramVec,
    pub(super) autoscalers: Gauge,
    desired: GaugeVec,
}

/// Returns the label of a scaling action.
fn action_label(action: ScalingAction) -> &'static str {
    match action {
        ScalingAction::Up => "scale_up",
        ScalingAction::Down => "scale_down",
        ScalingAction::Nothing => "none",
    }
}

/// Returns the label of an error. Upstream: `ErrorLabel`.
fn error_label(is_spec_error: Option<bool>) -> &'static str {
    match is_spec_error {
        None => "none",
        Some(true) => "spec",
        Some(false) => "internal",
    }
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let buckets = exponential(0.001, 2.0, 15);
        let autoscalers = Gauge::new(
            "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
            "Current number of controlled HPA objects.",
        );
        Self {
            reconciliations: counters(
                registry,
                "horizontal_pod_autoscaler_controller_reconciliations_total",
                "Number of reconciliations of HPA controller. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
                &["action", "error"],
            ),
            reconciliation_seconds: histograms(
                registry,
                "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
                "The time(seconds) that the HPA controller takes to reconcile once. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
                &buckets,
                &["action", "error"],
            ),
            computations: counters(
                registry,
                "horizontal_pod_autoscaler_controller_metric_computation_total",
                "Number of metric computations. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
                &["action", "error", "metric_type"],
            ),
            computation_seconds: histograms(
                registry,
                "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
                "The time(seconds) that the HPA controller takes to calculate one metric. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. The label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
                &buckets,
                &["action", "error", "metric_type"],
            ),
            autoscalers: register(registry, autoscalers.expect("the name is a valid literal")),
            desired: gauges(
                registry,
                "horizontal_pod_autoscaler_controller_desired_replicas",
                "Current desired replica count for HPA objects.",
                &["namespace", "hpa_name"],
            ),
        }
    }

    /// Observes a reconciliation. `is_spec_error` is `None` without an error, and true if the spec is invalid.
    /// Upstream:
    /// `ObserveReconciliationResult`.
    pub(super) fn observe_reconciliation(
        &self,
        action: ScalingAction,
        is_spec_error: Option<bool>,
        took: Duration,
    ) {
        let labels = [action_label(action), error_label(is_spec_error)];
        self.reconciliations.with_label_values(&labels).inc();
        self.reconciliation_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Observes the computation of a metric of type `metric`. Upstream: `ObserveMetricComputationResult`.
    pub(super) fn observe_computation(
        &self,
        metric: &str,
        action: ScalingAction,
        is_spec_error: Option<bool>,
        took: Duration,
    ) {
        let labels = [action_label(action), error_label(is_spec_error), metric];
        self.computations.with_label_values(&labels).inc();
        self.computation_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Sets the gauge of desired replicas. Upstream: `ObserveDesiredReplicas`.
    pub(super) fn set_desired_replicas(&self, namespace: &str, name: &str, replicas: i32) {
        self.desired.with_label_values(&[namespace, name]).set(f64::from(replicas));
    }

    /// Removes the gauge of a deleted autoscaler.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        // An autoscaler that was never evaluated has no gauge.
        let _ = self.desired.remove_label_values(&[namespace, name]);
    }
}
