//! Normalization of the desired replicas: first the stabilization window ([`super::stabilization`]), then the scaling
//! policies and the bounds of the spec (KEP-853).
//!
//! Upstream: `normalizeDesiredReplicas`, `normalizeDesiredReplicasWithBehaviors`.

use super::stabilization::HpaHistory;
use evenkeel_api::{
    time::Timestamp,
    views::{HorizontalPodAutoscalerBehavior, HpaScalingPolicy, HpaScalingRules},
};
use std::time::Duration;

/// Limits of the spec, and the current replicas of the target.
pub(super) struct Bounds<'a> {
    /// Minimum, from `spec.minReplicas`.
    pub(super) min: i32,
    /// Maximum, from `spec.maxReplicas`.
    pub(super) max: i32,
    /// Current replicas of the target.
    pub(super) current: i32,
    pub(super) behavior: Option<&'a HorizontalPodAutoscalerBehavior>,
    /// Scale-down stabilization window without `spec.behavior`.
    pub(super) default_down_window: Duration,
}

/// Reason and message of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Explanation {
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

/// The normalized number of replicas, with conditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Normalized {
    pub(super) replicas: i32,
    /// For `AbleToScale`, which is true even if stabilization changed the proposal.
    pub(super) able_to_scale: Explanation,
    /// Whether a limit changed the stabilized replicas. It is the status of `ScalingLimited`.
    pub(super) is_limited: bool,
    /// For `ScalingLimited`: the limit that applied, or that none did.
    pub(super) scaling_limited: Explanation,
}

/// Replicas within the limits.
struct Limited {
    replicas: i32,
    /// The limit that applied, or that none did.
    explanation: Explanation,
}

/// For `AbleToScale`: no earlier recommendation delays this one.
const READY_FOR_NEW_SCALE: Explanation =
    Explanation { reason: "ReadyForNewScale", message: "recommended size matches current size" };
/// For `AbleToScale`: the stabilization window delays a scale-down.
const SCALE_DOWN_STABILIZED: Explanation = Explanation {
    reason: "ScaleDownStabilized",
    message: "recent recommendations were higher than current one, applying the highest recent recommendation",
};
/// For `AbleToScale`: the stabilization window delays a scale-up.
const SCALE_UP_STABILIZED: Explanation = Explanation {
    reason: "ScaleUpStabilized",
    message: "recent recommendations were lower than current one, applying the lowest recent recommendation",
};
/// For `ScalingLimited`: no limit applied.
const WITHIN_RANGE: Explanation = Explanation {
    reason: "DesiredWithinRange",
    message: "the desired count is within the acceptable range",
};
/// For `ScalingLimited`: `minReplicas` applied.
const TOO_FEW_REPLICAS: Explanation = Explanation {
    reason: "TooFewReplicas",
    message: "the desired replica count is less than the minimum replica count",
};
/// For `ScalingLimited`: `maxReplicas` applied.
const TOO_MANY_REPLICAS: Explanation = Explanation {
    reason: "TooManyReplicas",
    message: "the desired replica count is more than the maximum replica count",
};
/// For `ScalingLimited`: the maximum rate of scale-ups applied.
const SCALE_UP_LIMIT: Explanation = Explanation {
    reason: "ScaleUpLimit",
    message: "the desired replica count is increasing faster than the maximum scale rate",
};
/// For `ScalingLimited`: the maximum rate of scale-downs applied.
const SCALE_DOWN_LIMIT: Explanation = Explanation {
    reason: "ScaleDownLimit",
    message: "the desired replica count is decreasing faster than the maximum scale rate",
};

/// Rules of `spec.behavior`, which the API server's defaults complete.
#[derive(Clone, Copy)]
struct ScalingRules<'a> {
    up: &'a HpaScalingRules,
    down: &'a HpaScalingRules,
}

impl<'a> ScalingRules<'a> {
    /// Returns `None` if one direction has no rules.
    fn of(behavior: &'a HorizontalPodAutoscalerBehavior) -> Option<Self> {
        Some(Self { up: behavior.scale_up.as_deref()?, down: behavior.scale_down.as_deref()? })
    }
}

/// Applies stabilization and limits to the proposed replicas, and records them as a recommendation.
///
/// Upstream: `normalizeDesiredReplicas`, `normalizeDesiredReplicasWithBehaviors`.
pub(super) fn normalize_desired_replicas(
    proposed: i32,
    bounds: &Bounds<'_>,
    history: &mut HpaHistory,
    now: Timestamp,
) -> Normalized {
    let window = bounds.default_down_window;
    let (stabilized, explanation, limited) = match bounds.behavior.and_then(ScalingRules::of) {
        None => {
            let stabilized = history.stabilize_recommendation(proposed, window, now);
            let limited = convert_desired_replicas_with_rules(stabilized, bounds);
            (stabilized, SCALE_DOWN_STABILIZED, limited)
        }
        Some(rules) => {
            let default_seconds = i32::try_from(window.as_secs()).unwrap_or(i32::MAX);
            let stabilized = history.stabilize_recommendation_with_behaviors(
                bounds.current,
                proposed,
                rules.up.stabilization_window_seconds.unwrap_or(0),
                rules.down.stabilization_window_seconds.unwrap_or(default_seconds),
                now,
            );
            let scales_up = proposed >= bounds.current;
            let explanation = if scales_up { SCALE_UP_STABILIZED } else { SCALE_DOWN_STABILIZED };
            let limited = convert_desired_replicas_with_behavior_rate(
                stabilized, bounds, rules, history, now,
            );
            (stabilized, explanation, limited)
        }
    };
    Normalized {
        replicas: limited.replicas,
        able_to_scale: if stabilized == proposed { READY_FOR_NEW_SCALE } else { explanation },
        is_limited: limited.replicas != stabilized,
        scaling_limited: limited.explanation,
    }
}

/// Returns the upper limit: the rate limit, or `spec.maxReplicas` if that is lower.
fn upper_limit(bounds: &Bounds<'_>, rate_limit: i32) -> Limited {
    if bounds.max > rate_limit {
        Limited { replicas: rate_limit, explanation: SCALE_UP_LIMIT }
    } else {
        Limited { replicas: bounds.max, explanation: TOO_MANY_REPLICAS }
    }
}

/// Returns the lower limit: the rate limit, or `spec.minReplicas` if that is higher.
fn lower_limit(bounds: &Bounds<'_>, rate_limit: i32) -> Limited {
    if bounds.min < rate_limit {
        Limited { replicas: rate_limit, explanation: SCALE_DOWN_LIMIT }
    } else {
        Limited { replicas: bounds.min, explanation: TOO_FEW_REPLICAS }
    }
}

/// Applies the limits without `spec.behavior`: a scale up reaches at most twice the current replicas, or four if that
/// is more. The API server's default `behavior` has the same limits (`autoscaler` in `defaults/objects.rs` in
/// `evenkeel-kinds`).
///
/// Upstream: `convertDesiredReplicasWithRules`, `calculateScaleUpLimit`.
fn convert_desired_replicas_with_rules(proposed: i32, bounds: &Bounds<'_>) -> Limited {
    let upper = upper_limit(bounds, bounds.current.saturating_mul(2).max(4));
    if proposed < bounds.min {
        Limited { replicas: bounds.min, explanation: TOO_FEW_REPLICAS }
    } else if proposed > upper.replicas {
        upper
    } else {
        Limited { replicas: proposed, explanation: WITHIN_RANGE }
    }
}

/// Applies the limits of `spec.behavior`: the policies for scaling up or for scaling down. Upstream:
/// `convertDesiredReplicasWithBehaviorRate`.
fn convert_desired_replicas_with_behavior_rate(
    proposed: i32,
    bounds: &Bounds<'_>,
    rules: ScalingRules<'_>,
    history: &HpaHistory,
    now: Timestamp,
) -> Limited {
    let current = bounds.current;
    let replicas_at_start = |policy: &HpaScalingPolicy| {
        history.replicas_at_period_start(current, policy.period_seconds, now)
    };
    if proposed > current {
        let rate_limit = scale_up_limit(rules.up, current, replicas_at_start).max(current);
        let upper = upper_limit(bounds, rate_limit);
        if proposed > upper.replicas {
            return upper;
        }
    } else if proposed < current {
        let rate_limit = scale_down_limit(rules.down, current, replicas_at_start).min(current);
        let lower = lower_limit(bounds, rate_limit);
        if proposed < lower.replicas {
            return lower;
        }
    }
    Limited { replicas: proposed, explanation: WITHIN_RANGE }
}

/// Returns the maximum replicas by the `scaleUp` policies and `selectPolicy`. Percentages are rounded up.
/// `replicas_at_start` returns the replicas at the start of a policy's period. Upstream:
/// `calculateScaleUpLimitWithScalingRules`.
fn scale_up_limit(
    rules: &HpaScalingRules,
    current: i32,
    replicas_at_start: impl Fn(&HpaScalingPolicy) -> i32,
) -> i32 {
    let limits = rules.policies.iter().map(|policy| {
        let at_start = replicas_at_start(policy);
        match &*policy.type_ {
            "Percent" => {
                (f64::from(at_start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32
            }
            _ => at_start.saturating_add(policy.value),
        }
    });
    match &*rules.select_policy {
        "Disabled" => current,
        "Min" => limits.min().unwrap_or(i32::MAX),
        _ => limits.max().unwrap_or(i32::MIN),
    }
}

/// Returns the minimum replicas by the `scaleDown` policies and `selectPolicy`. The policy `Min` selects the smallest
/// change, so the highest limit. Upstream: `calculateScaleDownLimitWithBehaviors`.
fn scale_down_limit(
    rules: &HpaScalingRules,
    current: i32,
    replicas_at_start: impl Fn(&HpaScalingPolicy) -> i32,
) -> i32 {
    let limits = rules.policies.iter().map(|policy| {
        let at_start = replicas_at_start(policy);
        match &*policy.type_ {
            "Percent" => (f64::from(at_start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            _ => at_start.saturating_sub(policy.value),
        }
    });
    match &*rules.select_policy {
        "Disabled" => current,
        "Min" => limits.max().unwrap_or(i32::MIN),
        _ => limits.min().unwrap_or(i32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, object};
    use evenkeel_api::views::HorizontalPodAutoscaler;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn behavior(up: &Value, down: &Value) -> HorizontalPodAutoscalerBehavior {
        let spec = json!({"spec": {"behavior": {"scaleUp": up, "scaleDown": down}}});
        *object::<HorizontalPodAutoscaler>(&spec).spec.behavior.expect("behavior is set")
    }

    fn bounds(current: i32, behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Bounds<'_> {
        Bounds { min: 2, max: 20, current, behavior, default_down_window: Duration::from_secs(300) }
    }

    #[test]
    fn default_limits_apply_without_behavior() {
        let normalize = |proposed, current| {
            let normalized = normalize_desired_replicas(
                proposed,
                &bounds(current, None),
                &mut HpaHistory::default(),
                T0,
            );
            (normalized.replicas, normalized.is_limited, normalized.scaling_limited.reason)
        };
        assert_eq!(normalize(3, 3), (3, false, "DesiredWithinRange"));
        assert_eq!(normalize(1, 3), (2, true, "TooFewReplicas"));
        assert_eq!(normalize(9, 3), (6, true, "ScaleUpLimit"));
        assert_eq!(normalize(9, 1), (4, true, "ScaleUpLimit"));
        assert_eq!(normalize(99, 15), (20, true, "TooManyReplicas"));
    }

    #[test]
    fn scale_down_waits_for_the_stabilization_window() {
        let mut history = HpaHistory::default();
        history.record_initial_recommendation(8, T0);
        let normalized = normalize_desired_replicas(3, &bounds(8, None), &mut history, at(100));
        assert_eq!(
            (normalized.replicas, normalized.able_to_scale.reason),
            (8, "ScaleDownStabilized")
        );
        let normalized = normalize_desired_replicas(3, &bounds(8, None), &mut history, at(400));
        assert_eq!((normalized.replicas, normalized.able_to_scale.reason), (3, "ReadyForNewScale"));
    }

    fn policy(type_: &str, value: i32, period: i32) -> Value {
        json!({"type": type_, "value": value, "periodSeconds": period})
    }

    #[test]
    fn scale_up_policies_limit_the_rate() {
        let policies_of_both_types = json!([policy("Pods", 4, 15), policy("Percent", 100, 15)]);
        let down = json!({"selectPolicy": "Max", "policies": [policy("Percent", 100, 15)], "stabilizationWindowSeconds": 0});
        let normalize = |select: &str, policies: &Value, proposed, current| {
            let up = json!({"selectPolicy": select, "policies": policies, "stabilizationWindowSeconds": 0});
            let behavior = behavior(&up, &down);
            let normalized = normalize_desired_replicas(
                proposed,
                &bounds(current, Some(&behavior)),
                &mut HpaHistory::default(),
                T0,
            );
            (normalized.replicas, normalized.scaling_limited.reason)
        };
        assert_eq!(normalize("Max", &policies_of_both_types, 19, 3), (7, "ScaleUpLimit"));
        assert_eq!(normalize("Max", &policies_of_both_types, 19, 6), (12, "ScaleUpLimit"));
        assert_eq!(normalize("Min", &policies_of_both_types, 19, 3), (6, "ScaleUpLimit"));
        assert_eq!(normalize("Disabled", &policies_of_both_types, 19, 3), (3, "ScaleUpLimit"));
        assert_eq!(
            normalize("Max", &json!([policy("Percent", 10, 15)]), 19, 3),
            (4, "ScaleUpLimit"),
            "rounded up"
        );
        assert_eq!(normalize("Max", &policies_of_both_types, 99, 15), (20, "TooManyReplicas"));
        assert_eq!(normalize("Max", &policies_of_both_types, 5, 3), (5, "DesiredWithinRange"));
    }

    #[test]
    fn scale_down_policies_limit_the_rate() {
        let policies_of_both_types = json!([policy("Pods", 4, 15), policy("Percent", 30, 15)]);
        let up = json!({"selectPolicy": "Max", "policies": [policy("Percent", 100, 15)], "stabilizationWindowSeconds": 0});
        let normalize = |select: &str, proposed, current| {
            let down = json!({"selectPolicy": select, "policies": policies_of_both_types, "stabilizationWindowSeconds": 0});
            let behavior = behavior(&up, &down);
            let normalized = normalize_desired_replicas(
                proposed,
                &bounds(current, Some(&behavior)),
                &mut HpaHistory::default(),
                T0,
            );
            (normalized.replicas, normalized.scaling_limited.reason)
        };
        assert_eq!(normalize("Max", 2, 9), (5, "ScaleDownLimit"));
        assert_eq!(normalize("Max", 2, 19), (13, "ScaleDownLimit"));
        assert_eq!(normalize("Min", 2, 9), (6, "ScaleDownLimit"));
        assert_eq!(normalize("Disabled", 2, 9), (9, "ScaleDownLimit"));
        assert_eq!(normalize("Max", 0, 4), (2, "TooFewReplicas"));
    }

    #[test]
    fn replicas_added_within_the_period_use_up_the_policy() {
        let up = json!({"selectPolicy": "Max", "policies": [policy("Pods", 4, 60)], "stabilizationWindowSeconds": 0});
        let behavior = behavior(&up, &up);
        let mut history = HpaHistory::default();
        history.store_scale_event(3, 6, behavior.scale_up.as_deref(), T0);
        let replicas_after = |seconds| {
            normalize_desired_replicas(
                19,
                &bounds(6, Some(&behavior)),
                &mut history.clone(),
                at(seconds),
            )
            .replicas
        };
        assert_eq!(replicas_after(30), 7, "4 more than 3");
        assert_eq!(replicas_after(61), 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        #[test]
        fn replicas_stay_within_bounds_and_direction(proposed in 0i32..60, current in 2i32..=20, value in 1i32..200, counts_pods: bool, select in 0usize..3, has_behavior: bool) {
            let kind = if counts_pods { "Pods" } else { "Percent" };
            let select = ["Max", "Min", "Disabled"][select];
            let scaling_rules = json!({"selectPolicy": select, "policies": [policy(kind, value, 60)]});
            let behavior = behavior(&scaling_rules, &scaling_rules);
            let mut history = HpaHistory::default();
            history.record_initial_recommendation(current, T0);
            let bounds = bounds(current, has_behavior.then_some(&behavior));
            let replicas = normalize_desired_replicas(proposed, &bounds, &mut history, at(1)).replicas;
            prop_assert!((2..=20).contains(&replicas));
            prop_assert!(proposed < current || replicas >= current);
            prop_assert!(proposed > current || replicas <= current);
        }
    }
}
