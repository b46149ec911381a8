//! Metrics of the horizontal pod autoscaler, with upstream's names. Upstream: `monitor` package.

use super::reconcile::{ErrorLabel, ScalingAction};
use evenkeel_runtime::metrics::{counters, exponential, gauges, histograms, register};
use prometheus::{Gauge, GaugeVec, HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

/// Counters, gauges and histograms of the controller.
pub(super) struct Metrics {
    reconciliations: IntCounterVec,
    reconciliation_seconds: HistogramVec,
    computations: IntCounterVec,
    computation_seconds: HistogramVec,
    /// Number of autoscalers.
    pub(super) autoscalers: Gauge,
    desired_replicas: GaugeVec,
}

/// Returns the value of the label `action`.
fn action_label(action: ScalingAction) -> &'static str {
    match action {
        ScalingAction::Up => "scale_up",
        ScalingAction::Down => "scale_down",
        ScalingAction::Nothing => "none",
    }
}

/// Returns the value of the label `error`.
fn error_label(error: ErrorLabel) -> &'static str {
    match error {
        ErrorLabel::NoError => "none",
        ErrorLabel::Spec => "spec",
        ErrorLabel::Internal => "internal",
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
            desired_replicas: gauges(
                registry,
                "horizontal_pod_autoscaler_controller_desired_replicas",
                "Current desired replica count for HPA objects.",
                &["namespace", "hpa_name"],
            ),
        }
    }

    /// Observes a reconciliation. Upstream: `ObserveReconciliationResult`.
    pub(super) fn observe_reconciliation(
        &self,
        action: ScalingAction,
        error: ErrorLabel,
        took: Duration,
    ) {
        let labels = [action_label(action), error_label(error)];
        self.reconciliations.with_label_values(&labels).inc();
        self.reconciliation_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Observes the computation of a metric of this type, such as `Resource`. Upstream:
    /// `ObserveMetricComputationResult`.
    pub(super) fn observe_computation(
        &self,
        metric_type: &str,
        action: ScalingAction,
        error: ErrorLabel,
        took: Duration,
    ) {
        let labels = [action_label(action), error_label(error), metric_type];
        self.computations.with_label_values(&labels).inc();
        self.computation_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Sets the gauge of desired replicas. Upstream: `ObserveDesiredReplicas`.
    pub(super) fn set_desired_replicas(&self, namespace: &str, name: &str, replicas: i32) {
        self.desired_replicas.with_label_values(&[namespace, name]).set(f64::from(replicas));
    }

    /// Removes the gauge of a deleted autoscaler.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        // The removal fails for an autoscaler that was never evaluated, because it has no gauge.
        let _ = self.desired_replicas.remove_label_values(&[namespace, name]);
    }
}
