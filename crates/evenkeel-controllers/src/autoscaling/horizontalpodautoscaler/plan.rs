//! Decision of the horizontal pod autoscaler. Upstream: `reconcileAutoscaler`.
//!
//! A reconciliation ([`super::reconcile`]) has three decisions. [`choose_approach`] decides whether metrics are needed,
//! [`decide_replicas`] computes the replicas, and [`conclude`] sets the status after the scale was updated.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `minReplicas`, `maxReplicas` | `choose_approach`, `normalize::normalize_desired_replicas` |
//! | `metrics`, `type`: `Resource`, `ContainerResource`, `Pods`, `Object`, `External` | `metric::propose`, read by `readings::read` |
//! | several metrics: the highest proposal; metrics that cannot be read | `compute_replicas_for_metrics` |
//! | `target.averageUtilization` | `replicas::by_utilization` |
//! | `target.averageValue` | `replicas::by_average`, `replicas::by_value_per_pod` |
//! | `target.value` | `replicas::by_value` |
//! | `ceil(currentReplicas × currentMetricValue / desiredMetricValue)`; missing metrics, pods not yet ready, reversed direction | `replicas::desired_replicas` |
//! | terminating and failed pods; `--horizontal-pod-autoscaler-cpu-initialization-period`, `--horizontal-pod-autoscaler-initial-readiness-delay` | `samples::Groups`, `samples::is_starting` |
//! | `behavior.scaleUp.tolerance`, `behavior.scaleDown.tolerance`, `--horizontal-pod-autoscaler-tolerance` | `tolerances`, `replicas::is_within` |
//! | `stabilizationWindowSeconds` | `stabilization::stabilize_recommendation_with_behaviors` |
//! | `--horizontal-pod-autoscaler-downscale-stabilization`, without `behavior` | `stabilization::stabilize_recommendation` |
//! | `policies`: `type` `Pods`, `Percent`, `value`, `periodSeconds`; `selectPolicy`: `Max`, `Min`, `Disabled` | `normalize::scale_up_limit`, `normalize::scale_down_limit`, `stabilization::replicas_at_period_start` |
//! | the default behavior | `normalize::convert_desired_replicas_with_rules` |
//! | defaults of `minReplicas`, `metrics`, and of a partial `behavior` | `../../../../evenkeel-kinds/src/defaults/objects.rs` |
//! | scaling to zero and from it, condition `ScaledToZero` | `choose_approach`, `is_scaled_to_zero`, `set_scaled_to_zero` |
//! | conditions `AbleToScale`, `ScalingLimited` | `decide_replicas`, `normalize_proposal`, `conclude` |
//! | condition `ScalingActive` | `decide_replicas`, `compute_replicas_for_metrics` |
//! | `AmbiguousSelector`: pods that several autoscalers select | `selectors::check_unambiguous` |

use super::{
    Options,
    metric::{MetricError, Proposal},
    normalize::{self, Bounds, Explanation},
    replicas::Tolerances,
    stabilization::HpaHistory,
    status::{ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_ACTIVE, SCALING_LIMITED, StatusBuilder},
};
use crate::scale::Scale;
use evenkeel_api::{
    quantity::Quantity,
    time::Timestamp,
    views::{
        HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, HpaScalingRules, MetricStatus,
        Pod,
    },
};
use std::sync::Arc;

/// Observed state of an autoscaler, without metrics.
pub(super) struct Observed {
    pub(super) autoscaler: Arc<HorizontalPodAutoscaler>,
    /// Scale of the target.
    pub(super) scale: Scale,
}

impl Observed {
    /// Returns the minimum number of replicas. Default: 1.
    fn min_replicas(&self) -> i32 {
        self.autoscaler.spec.min_replicas.unwrap_or(1)
    }

    /// Returns the maximum number of replicas.
    fn max_replicas(&self) -> i32 {
        self.autoscaler.spec.max_replicas
    }

    /// Returns the scaling rules that the user set.
    fn behavior(&self) -> Option<&HorizontalPodAutoscalerBehavior> {
        self.autoscaler.spec.behavior.as_deref()
    }

    /// Returns whether the autoscaler has an object or external metric. Such a metric has values even without pods.
    fn has_metric_without_pods(&self) -> bool {
        let mut metrics = self.autoscaler.spec.metrics.iter();
        metrics.any(|metric| matches!(&*metric.type_, "Object" | "External"))
    }

    /// Returns whether this autoscaler scaled the target to zero, rather than the user (KEP-2021).
    fn is_scaled_to_zero(&self, options: &Options) -> bool {
        let conditions = &self.autoscaler.status.conditions;
        options.scale_to_zero && evenkeel_api::condition::is_true(conditions, SCALED_TO_ZERO)
    }
}

/// Returns the tolerances of this autoscaler. Upstream: `tolerances`.
pub(super) fn tolerances(
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    options: &Options,
) -> Tolerances {
    let behavior = behavior.filter(|_| options.configurable_tolerance);
    let configured_or_default = |rules: Option<&HpaScalingRules>| {
        rules.and_then(|rules| rules.tolerance).map_or(options.tolerance, Quantity::as_f64)
    };
    Tolerances {
        down: configured_or_default(behavior.and_then(|behavior| behavior.scale_down.as_deref())),
        up: configured_or_default(behavior.and_then(|behavior| behavior.scale_up.as_deref())),
    }
}

/// Way in which a reconciliation finds the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approach {
    /// The user scaled the target to zero, which disables the autoscaler.
    Disabled,
    /// Scale to the minimum or maximum.
    UseBound { replicas: i32, reason: &'static str },
    /// Evaluate the metrics.
    UseMetrics,
}

/// Decides whether metrics are needed. Upstream: `reconcileAutoscaler`.
pub(super) fn choose_approach(observed: &Observed, options: &Options) -> Approach {
    let current = observed.scale.replicas;
    if current == 0 {
        let is_active = observed.is_scaled_to_zero(options)
            && (observed.min_replicas() != 0 || observed.has_metric_without_pods());
        return if is_active { Approach::UseMetrics } else { Approach::Disabled };
    }
    if current > observed.max_replicas() {
        Approach::UseBound {
            replicas: observed.max_replicas(),
            reason: "Current number of replicas above Spec.MaxReplicas",
        }
    } else if current < observed.min_replicas() {
        Approach::UseBound {
            replicas: observed.min_replicas(),
            reason: "Current number of replicas below Spec.MinReplicas",
        }
    } else {
        Approach::UseMetrics
    }
}

/// Proposals of the metrics.
#[derive(Debug)]
pub(super) enum Proposals {
    /// One proposal or error for each metric, in the order of the spec.
    Each(Vec<Result<Proposal, MetricError>>),
    /// The selector is missing, invalid or ambiguous.
    Unselected(SelectorError),
}

/// Error of the target's selector.
#[derive(Debug)]
pub(super) struct SelectorError {
    pub(super) event_reason: &'static str,
    pub(super) condition_reason: &'static str,
    pub(super) condition_message: String,
    /// Message of the event and of the reconciliation's error.
    pub(super) error: String,
}

/// Decision about the replicas.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) builder: StatusBuilder,
    /// Desired replicas of the target.
    pub(super) desired: i32,
    /// Reason of the rescale. `None` if the replicas stay.
    pub(super) rescale_reason: Option<String>,
    /// Error of the reconciliation, even if other metrics gave a result.
    pub(super) error: Option<ReconcileError>,
    /// Whether the metrics gave no replicas, so that the target keeps its own.
    pub(super) has_failed: bool,
}

/// Error of a reconciliation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReconcileError {
    pub(super) message: String,
    /// Whether the autoscaler's spec is invalid.
    pub(super) is_spec_error: bool,
}

/// Returns the status of an autoscaler whose target's scale cannot be read, for the reason `why`.
pub(super) fn status_without_scale(
    autoscaler: &HorizontalPodAutoscaler,
    why: &str,
    now: Timestamp,
) -> StatusBuilder {
    let mut builder = StatusBuilder::new(autoscaler, now);
    builder.warning_event("FailedGetScale", why);
    let message = format!("the HPA controller was unable to get the target's current scale: {why}");
    builder.set_condition(ABLE_TO_SCALE, "False", "FailedGetScale", &message);
    builder
}

/// The most replicas that a metric proposes.
#[derive(Default)]
struct HighestProposal {
    replicas: i32,
    /// Name of the metric.
    metric: String,
}

/// Result over all metrics.
struct ComputedReplicas {
    /// `None` if the metrics gave no replicas.
    highest: Option<HighestProposal>,
    statuses: Vec<MetricStatus>,
    error: Option<ReconcileError>,
}

/// Returns the maximum of the proposals. If a metric failed and the maximum would scale down, returns no
/// replicas. Upstream: `computeReplicasForMetrics`.
fn compute_replicas_for_metrics(
    observed: &Observed,
    proposals: Proposals,
    builder: &mut StatusBuilder,
) -> ComputedReplicas {
    let results = match proposals {
        Proposals::Each(results) => results,
        Proposals::Unselected(error) => {
            let SelectorError { event_reason, condition_reason, condition_message, error } = error;
            builder.warning_event(event_reason, error.clone());
            builder.set_condition(SCALING_ACTIVE, "False", condition_reason, &condition_message);
            let error = Some(ReconcileError { message: error, is_spec_error: false });
            return ComputedReplicas { highest: None, statuses: Vec::new(), error };
        }
    };
    let n_metrics = results.len();
    let mut highest = HighestProposal::default();
    let mut statuses = Vec::new();
    let mut errors: Vec<MetricError> = Vec::new();
    for result in results {
        match result {
            Ok(proposal) => {
                statuses.push(proposal.status);
                if highest.replicas == 0 || proposal.replicas > highest.replicas {
                    highest =
                        HighestProposal { replicas: proposal.replicas, metric: proposal.name };
                }
            }
            Err(error) => {
                statuses.push(MetricStatus::default());
                builder.warning_event(error.reason, error.message.clone());
                errors.push(error);
            }
        }
    }
    let error = errors.first().map(|first| ReconcileError {
        message: format!(
            "invalid metrics ({} invalid out of {n_metrics}), first error is: {}",
            errors.len(),
            first.error
        ),
        is_spec_error: first.is_spec_error,
    });
    if let Some(first) = errors.first()
        && (errors.len() >= n_metrics || highest.replicas < observed.scale.replicas)
    {
        let message = format!("the HPA was unable to compute the replica count: {}", first.message);
        builder.set_condition(SCALING_ACTIVE, "False", first.reason, &message);
        return ComputedReplicas { highest: None, statuses, error };
    }
    let metric = &highest.metric;
    let message =
        format!("the HPA was able to successfully calculate a replica count from {metric}");
    builder.set_condition(SCALING_ACTIVE, "True", "ValidMetricFound", &message);
    ComputedReplicas { highest: Some(highest), statuses, error }
}

/// Computes the desired replicas. `proposals` are only read for [`Approach::UseMetrics`].
pub(super) fn decide_replicas(
    observed: &Observed,
    approach: Approach,
    proposals: Proposals,
    history: &mut HpaHistory,
    options: &Options,
    now: Timestamp,
) -> Decision {
    let mut builder = StatusBuilder::new(&observed.autoscaler, now);
    let message = "the HPA controller was able to get the target's current scale";
    builder.set_condition(ABLE_TO_SCALE, "True", "SucceededGetScale", message);
    let current = observed.scale.replicas;
    history.record_initial_recommendation(current, now);
    let mut error = None;
    let mut has_failed = false;
    let (desired, rescale_reason) = match approach {
        Approach::Disabled => {
            let message = "scaling is disabled since the replica count of the target is zero";
            builder.set_condition(SCALING_ACTIVE, "False", "ScalingDisabled", message);
            if !options.scale_to_zero {
                builder.remove_condition(SCALED_TO_ZERO);
            }
            builder.status.current_metrics = Box::new([]);
            (0, None)
        }
        Approach::UseBound { replicas, reason } => {
            builder.status.current_metrics = Box::new([]);
            (replicas, Some(reason.to_owned()))
        }
        Approach::UseMetrics => {
            let computed = compute_replicas_for_metrics(observed, proposals, &mut builder);
            builder.status.current_metrics = computed.statuses.into();
            error = computed.error;
            match computed.highest {
                Some(highest) => {
                    let (desired, reason) =
                        normalize_proposal(observed, &highest, &mut builder, history, options, now);
                    (desired, (desired != current).then_some(reason))
                }
                None => {
                    has_failed = true;
                    let message = error.as_ref().map(|error| error.message.clone());
                    builder
                        .warning_event("FailedComputeMetricsReplicas", message.unwrap_or_default());
                    (current, None)
                }
            }
        }
    };
    Decision { builder, desired, rescale_reason, error, has_failed }
}

/// Returns the normalized replicas, and the reason of a rescale. Upstream: `normalizeDesiredReplicas`.
fn normalize_proposal(
    observed: &Observed,
    highest: &HighestProposal,
    builder: &mut StatusBuilder,
    history: &mut HpaHistory,
    options: &Options,
    now: Timestamp,
) -> (i32, String) {
    let current = observed.scale.replicas;
    let is_above_zero = highest.replicas > 0;
    let (proposed, metric) =
        if is_above_zero { (highest.replicas, &*highest.metric) } else { (0, "") };
    let mut reason = match proposed.cmp(&current) {
        std::cmp::Ordering::Greater => format!("{metric} above target"),
        std::cmp::Ordering::Less => "All metrics below target".to_owned(),
        std::cmp::Ordering::Equal => String::new(),
    };
    let bounds = Bounds {
        min: observed.min_replicas(),
        max: observed.max_replicas(),
        current,
        behavior: observed.behavior(),
        default_down_window: options.downscale_stabilization,
    };
    let normalized = normalize::normalize_desired_replicas(proposed, &bounds, history, now);
    let Explanation { reason: able_reason, message } = normalized.able_to_scale;
    builder.set_condition(ABLE_TO_SCALE, "True", able_reason, message);
    let Explanation { reason: limit_reason, message } = normalized.scaling_limited;
    let status = if normalized.is_limited { "True" } else { "False" };
    builder.set_condition(SCALING_LIMITED, status, limit_reason, message);
    let mut desired = normalized.replicas;
    // The user raised `minReplicas` while the target had no replicas.
    if current == 0
        && observed.min_replicas() != 0
        && observed.is_scaled_to_zero(options)
        && desired < observed.min_replicas()
    {
        desired = observed.min_replicas();
        if reason.is_empty() {
            "Current number of replicas below Spec.MinReplicas".clone_into(&mut reason);
        }
    }
    (desired, reason)
}

/// Returns the status after the scale update. `scale_update` is the update's result, `None` if there was no update.
pub(super) fn conclude(
    observed: &Observed,
    decision: &Decision,
    scale_update: Option<&Result<(), String>>,
    history: &mut HpaHistory,
    options: &Options,
    now: Timestamp,
) -> StatusBuilder {
    let mut builder = decision.builder.clone();
    let current = observed.scale.replicas;
    let desired = decision.desired;
    let why = decision.rescale_reason.as_deref().unwrap_or_default();
    let previously_desired = observed.autoscaler.status.desired_replicas;
    builder.status.desired_replicas = match scale_update {
        None if decision.has_failed => previously_desired,
        None => current,
        Some(Err(error)) => {
            let message = format!("New size: {desired}; reason: {why}; error: {error}");
            builder.warning_event("FailedRescale", message);
            let message =
                format!("the HPA controller was unable to update the target scale: {error}");
            builder.set_condition(ABLE_TO_SCALE, "False", "FailedUpdateScale", &message);
            previously_desired
        }
        Some(Ok(())) => {
            let message =
                format!("the HPA controller was able to update the target scale to {desired}");
            builder.set_condition(ABLE_TO_SCALE, "True", "SucceededRescale", &message);
            builder
                .normal_event("SuccessfulRescale", format!("New size: {desired}; reason: {why}"));
            if let Some(behavior) = observed.behavior() {
                let scales_up = desired > current;
                let rules = if scales_up { &behavior.scale_up } else { &behavior.scale_down };
                history.store_scale_event(current, desired, rules.as_deref(), now);
            }
            set_scaled_to_zero(observed, desired, &mut builder, options);
            builder.set_last_scale_time();
            desired
        }
    };
    builder.status.current_replicas = current;
    if options.observe_generation {
        builder.status.observed_generation = Some(observed.autoscaler.meta.generation);
    } else {
        builder.status.observed_generation = None;
    }
    builder
}

/// Sets the condition `ScaledToZero`, whose status depends on the last rescale.
fn set_scaled_to_zero(
    observed: &Observed,
    desired: i32,
    builder: &mut StatusBuilder,
    options: &Options,
) {
    if !options.scale_to_zero {
        builder.remove_condition(SCALED_TO_ZERO);
        return;
    }
    let scales_to_zero = observed.scale.replicas > 0 && desired == 0;
    if scales_to_zero && observed.min_replicas() == 0 && observed.has_metric_without_pods() {
        let message = "the HPA controller scaled the workload to zero";
        builder.set_condition(SCALED_TO_ZERO, "True", "ScaledToZero", message);
    } else {
        let message = "the HPA controller did not scale the workload to zero";
        builder.set_condition(SCALED_TO_ZERO, "False", "NotScaledToZero", message);
    }
}

/// Pods from the cache.
pub(super) type Pods = Vec<Arc<Pod>>;
