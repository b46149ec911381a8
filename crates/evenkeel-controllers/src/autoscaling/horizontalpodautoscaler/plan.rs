//! Decision of the horizontal pod autoscaler. Upstream: `reconcileAutoscaler`.
//!
//! A reconciliation ([`super::reconcile`]) has three decisions: [`course`] decides whether metrics are needed, [`decide`]
//! computes the replicas, and [`conclude`] sets the status after the scale was updated.
//!
//! | documented | where |
//! |---|---|
//! | `minReplicas`, `maxReplicas` | `course`, `normalize::normalize_desired_replicas` |
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
//! | scaling to zero and from it, condition `ScaledToZero` | `course`, `is_scaled_to_zero`, `set_scaled_to_zero` |
//! | conditions `AbleToScale`, `ScalingLimited` | `decide`, `normalize`, `conclude` |
//! | condition `ScalingActive` | `decide`, `compute_replicas_for_metrics` |
//! | `AmbiguousSelector`: pods that several autoscalers select | `selectors::check_unambiguous` |

use super::{
    Options,
    metric::{MetricError, Proposal},
    normalize::{self, Bounds},
    replicas::Tolerances,
    stabilization::StabilizationHistory,
    status::{ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_ACTIVE, SCALING_LIMITED, StatusBuilder},
};
use crate::scale::Scale;
use evenkeel_api::{
    quantity::Quantity,
    time::Timestamp,
    views::{HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, MetricStatus, Pod},
};
use std::sync::Arc;

/// Observed state of an autoscaler, without metrics.
pub(super) struct Observed {
    pub(super) autoscaler: Arc<HorizontalPodAutoscaler>,
    /// Scale of the target.
    pub(super) scale: Scale,
}

impl Observed {
    fn min(&self) -> i32 {
        self.autoscaler.spec.min_replicas.unwrap_or(1)
    }

    fn max(&self) -> i32 {
        self.autoscaler.spec.max_replicas
    }

    fn behavior(&self) -> Option<&HorizontalPodAutoscalerBehavior> {
        self.autoscaler.spec.behavior.as_deref()
    }

    /// Whether the autoscaler has an object or external metric, which has values even without pods.
    fn has_outside_metric(&self) -> bool {
        let metrics = self.autoscaler.spec.metrics.iter();
        metrics.into_iter().any(|metric| matches!(&*metric.type_, "Object" | "External"))
    }

    /// Whether this autoscaler scaled the target to zero, rather than the user (KEP-2021).
    fn is_scaled_to_zero(&self, options: &Options) -> bool {
        let conditions = &self.autoscaler.status.conditions;
        options.to_zero && evenkeel_api::condition::is_true(conditions, SCALED_TO_ZERO)
    }
}

/// Returns the tolerances of this autoscaler. Upstream: `tolerances`.
pub(super) fn tolerances(
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    options: &Options,
) -> Tolerances {
    let behavior = behavior.filter(|_| options.own_tolerance);
    let own = |rules: Option<&evenkeel_api::views::HpaScalingRules>| {
        rules.and_then(|rules| rules.tolerance).map_or(options.tolerance, Quantity::as_f64)
    };
    Tolerances {
        down: own(behavior.and_then(|behavior| behavior.scale_down.as_deref())),
        up: own(behavior.and_then(|behavior| behavior.scale_up.as_deref())),
    }
}

/// Course of a reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// The user scaled the target to zero, which disables the autoscaler.
    Disabled,
    /// Scale to this bound, for this reason.
    Bound(i32, &'static str),
    /// Evaluate the metrics.
    Measure,
}

/// Decides whether metrics are needed. Upstream: `reconcileAutoscaler`.
pub(super) fn course(observed: &Observed, options: &Options) -> Course {
    let current = observed.scale.replicas;
    if current == 0 {
        let scaled_to_zero_by_autoscaler = observed.is_scaled_to_zero(options);
        let is_active =
            scaled_to_zero_by_autoscaler && (observed.min() != 0 || observed.has_outside_metric());
        return if is_active { Course::Measure } else { Course::Disabled };
    }
    if current > observed.max() {
        Course::Bound(observed.max(), "Current number of replicas above Spec.MaxReplicas")
    } else if current < observed.min() {
        Course::Bound(observed.min(), "Current number of replicas below Spec.MinReplicas")
    } else {
        Course::Measure
    }
}

/// Proposals of the metrics.
#[derive(Debug)]
pub(super) enum Measured {
    /// One proposal or error for each metric, in the order of the spec.
    Each(Vec<Result<Proposal, MetricError>>),
    /// The selector is missing, invalid or ambiguous. `event` is the event's reason, empty for no event; `reason` and
    /// `message` are the condition's.
    Unselected { event: &'static str, reason: &'static str, message: String, error: String },
}

/// Decision about the replicas.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) builder: StatusBuilder,
    /// Desired replicas of the target.
    pub(super) desired: i32,
    /// Reason of the rescale; `None` if the replicas stay.
    pub(super) rescale: Option<String>,
    /// Error of the reconciliation, even if other metrics gave a result.
    pub(super) error: Option<Problem>,
    /// Whether no metric gave a result.
    pub(super) failed: bool,
}

/// Error of a reconciliation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) text: String,
    /// Whether the autoscaler's spec is invalid.
    pub(super) is_spec_error: bool,
}

/// Returns the status of an autoscaler whose scale target cannot be read.
pub(super) fn without_scale(
    autoscaler: &HorizontalPodAutoscaler,
    why: &str,
    now: Timestamp,
) -> StatusBuilder {
    let mut builder = StatusBuilder::new(autoscaler, now);
    builder.warn("FailedGetScale", why);
    let message = format!("the HPA controller was unable to get the target's current scale: {why}");
    builder.set(ABLE_TO_SCALE, false, "FailedGetScale", &message);
    builder
}

/// Result over all metrics.
struct ComputedReplicas {
    /// Replicas and the metric that proposes them; `None` without a result.
    replicas: Option<(i32, String)>,
    statuses: Vec<MetricStatus>,
    error: Option<Problem>,
}

/// Returns the maximum of the proposals. If a metric failed and the maximum would scale down, returns no
/// replicas. Upstream: `computeReplicasForMetrics`.
fn compute_replicas_for_metrics(
    observed: &Observed,
    measured: Measured,
    builder: &mut StatusBuilder,
) -> ComputedReplicas {
    let each = match measured {
        Measured::Each(each) => each,
        Measured::Unselected { event, reason, message, error } => {
            builder.warn(event, error.clone());
            builder.set(SCALING_ACTIVE, false, reason, &message);
            let error = Some(Problem { text: error, is_spec_error: false });
            return ComputedReplicas { replicas: None, statuses: Vec::new(), error };
        }
    };
    let count = each.len();
    let (mut highest, mut statuses) = ((0, String::new()), Vec::new());
    let mut errors: Vec<MetricError> = Vec::new();
    for metric in each {
        match metric {
            Ok(proposal) => {
                statuses.push(proposal.status);
                if highest.0 == 0 || proposal.replicas > highest.0 {
                    highest = (proposal.replicas, proposal.name);
                }
            }
            Err(error) => {
                statuses.push(MetricStatus::default());
                builder.warn(error.reason, error.message.clone());
                errors.push(error);
            }
        }
    }
    let error = errors.first().map(|first| Problem {
        text: format!(
            "invalid metrics ({} invalid out of {count}), first error is: {}",
            errors.len(),
            first.error
        ),
        is_spec_error: first.is_spec_error,
    });
    if let Some(first) = errors.first()
        && (errors.len() >= count || highest.0 < observed.scale.replicas)
    {
        let message = format!("the HPA was unable to compute the replica count: {}", first.message);
        builder.set(SCALING_ACTIVE, false, first.reason, &message);
        return ComputedReplicas { replicas: None, statuses, error };
    }
    let message =
        format!("the HPA was able to successfully calculate a replica count from {}", highest.1);
    builder.set(SCALING_ACTIVE, true, "ValidMetricFound", &message);
    ComputedReplicas { replicas: Some(highest), statuses, error }
}

/// Computes the desired replicas. `measured` has the proposals for [`Course::Measure`].
pub(super) fn decide(
    observed: &Observed,
    course: Course,
    measured: Measured,
    history: &mut StabilizationHistory,
    options: &Options,
    now: Timestamp,
) -> Decision {
    let mut builder = StatusBuilder::new(&observed.autoscaler, now);
    let message = "the HPA controller was able to get the target's current scale";
    builder.set(ABLE_TO_SCALE, true, "SucceededGetScale", message);
    let current = observed.scale.replicas;
    history.record_initial_recommendation(current, now);
    let (mut error, mut failed) = (None, false);
    let (desired, rescale) = match course {
        Course::Disabled => {
            let message = "scaling is disabled since the replica count of the target is zero";
            builder.set(SCALING_ACTIVE, false, "ScalingDisabled", message);
            if !options.to_zero {
                builder.remove(SCALED_TO_ZERO);
            }
            builder.status.current_metrics = Box::new([]);
            (0, None)
        }
        Course::Bound(to, why) => {
            builder.status.current_metrics = Box::new([]);
            (to, Some(why.to_owned()))
        }
        Course::Measure => {
            let computed = compute_replicas_for_metrics(observed, measured, &mut builder);
            builder.status.current_metrics = computed.statuses.into();
            error = computed.error;
            match computed.replicas {
                Some((highest, metric)) => {
                    let (to, why) =
                        normalize(observed, highest, &metric, &mut builder, history, options, now);
                    (to, (to != current).then_some(why))
                }
                None => {
                    failed = true;
                    let text = error.as_ref().map_or_else(String::new, |error| error.text.clone());
                    builder.warn("FailedComputeMetricsReplicas", text);
                    (current, None)
                }
            }
        }
    };
    Decision { builder, desired, rescale, error, failed }
}

/// Limits the desired replicas, and returns the reason of a change. Upstream: `normalizeDesiredReplicas`.
fn normalize(
    observed: &Observed,
    highest: i32,
    metric: &str,
    builder: &mut StatusBuilder,
    history: &mut StabilizationHistory,
    options: &Options,
    now: Timestamp,
) -> (i32, String) {
    let current = observed.scale.replicas;
    let (proposed, metric) = if highest > 0 { (highest, metric) } else { (0, "") };
    let mut why = match proposed.cmp(&current) {
        std::cmp::Ordering::Greater => format!("{metric} above target"),
        std::cmp::Ordering::Less => "All metrics below target".to_owned(),
        std::cmp::Ordering::Equal => String::new(),
    };
    let bounds = Bounds {
        min: observed.min(),
        max: observed.max(),
        current,
        behavior: observed.behavior(),
        window: options.downscale_stabilization,
    };
    let limited = normalize::normalize_desired_replicas(proposed, &bounds, history, now);
    builder.set(ABLE_TO_SCALE, true, limited.able.0, limited.able.1);
    builder.set(SCALING_LIMITED, limited.limited, limited.limit.0, limited.limit.1);
    let mut desired = limited.replicas;
    // The user raised `minReplicas` while the target had no replicas.
    if current == 0
        && observed.min() != 0
        && observed.is_scaled_to_zero(options)
        && desired < observed.min()
    {
        desired = observed.min();
        if why.is_empty() {
            "Current number of replicas below Spec.MinReplicas".clone_into(&mut why);
        }
    }
    (desired, why)
}

/// Returns the status after the scale update. `scaled` is the update's result, `None` without an update.
pub(super) fn conclude(
    observed: &Observed,
    decision: &Decision,
    scaled: Option<&Result<(), String>>,
    history: &mut StabilizationHistory,
    options: &Options,
    now: Timestamp,
) -> StatusBuilder {
    let mut builder = decision.builder.clone();
    let (current, desired) = (observed.scale.replicas, decision.desired);
    let why = decision.rescale.as_deref().unwrap_or_default();
    let before = observed.autoscaler.status.desired_replicas;
    builder.status.desired_replicas = match scaled {
        None if decision.failed => before,
        None => current,
        Some(Err(error)) => {
            let message = format!("New size: {desired}; reason: {why}; error: {error}");
            builder.warn("FailedRescale", message);
            let message =
                format!("the HPA controller was unable to update the target scale: {error}");
            builder.set(ABLE_TO_SCALE, false, "FailedUpdateScale", &message);
            before
        }
        Some(Ok(())) => {
            let message =
                format!("the HPA controller was able to update the target scale to {desired}");
            builder.set(ABLE_TO_SCALE, true, "SucceededRescale", &message);
            builder.normal("SuccessfulRescale", format!("New size: {desired}; reason: {why}"));
            if let Some(behavior) = observed.behavior() {
                let up = desired > current;
                let rules = if up { &behavior.scale_up } else { &behavior.scale_down };
                history.store_scale_event(current, desired, rules.as_deref(), now);
            }
            set_scaled_to_zero(observed, desired, &mut builder, options);
            builder.set_last_scale_time();
            desired
        }
    };
    builder.status.current_replicas = current;
    if options.by_generation {
        builder.status.observed_generation = Some(observed.autoscaler.meta.generation);
    } else {
        builder.status.observed_generation = None;
    }
    builder
}

/// Sets the condition `ScaledToZero` with each rescale, so that it is never stale.
fn set_scaled_to_zero(
    observed: &Observed,
    desired: i32,
    builder: &mut StatusBuilder,
    options: &Options,
) {
    if !options.to_zero {
        builder.remove(SCALED_TO_ZERO);
        return;
    }
    let to_zero = observed.scale.replicas > 0 && desired == 0;
    if to_zero && observed.min() == 0 && observed.has_outside_metric() {
        let message = "the HPA controller scaled the workload to zero";
        builder.set(SCALED_TO_ZERO, true, "ScaledToZero", message);
    } else {
        let message = "the HPA controller did not scale the workload to zero";
        builder.set(SCALED_TO_ZERO, false, "NotScaledToZero", message);
    }
}

/// Pods that the scale's selector matches.
pub(super) type Pods = Vec<Arc<Pod>>;
