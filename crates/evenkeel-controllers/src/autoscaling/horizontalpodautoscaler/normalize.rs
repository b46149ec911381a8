//! Normalization of the desired replicas: stabilization window ([`super::stabilization`]), then scaling policies, minimum and
//! maximum (KEP-853).
//!
//! Upstream: `normalizeDesiredReplicas`, `normalizeDesiredReplicasWithBehaviors`.

use super::stabilization::StabilizationHistory;
use evenkeel_api::{
    time::Timestamp,
    views::{HorizontalPodAutoscalerBehavior, HpaScalingPolicy, HpaScalingRules},
};
use std::time::Duration;

/// Limits of the spec, and the current replicas of the target.
pub(super) struct Bounds<'a> {
    pub(super) min: i32,
    pub(super) max: i32,
    pub(super) current: i32,
    pub(super) behavior: Option<&'a HorizontalPodAutoscalerBehavior>,
    /// Scale-down stabilization window without `spec.behavior`.
    pub(super) window: Duration,
}

/// Reason and message of a condition.
pub(super) type ReasonAndMessage = (&'static str, &'static str);

/// The normalized number of replicas, with conditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Normalized {
    pub(super) replicas: i32,
    /// For `AbleToScale`: whether stabilization changed the proposal.
    pub(super) able: ReasonAndMessage,
    pub(super) limited: bool,
    /// For `ScalingLimited`: the limit that applied, or that none did.
    pub(super) limit: ReasonAndMessage,
}

const READY: ReasonAndMessage = ("ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: ReasonAndMessage = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: ReasonAndMessage = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: ReasonAndMessage =
    ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FEW: ReasonAndMessage =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: ReasonAndMessage =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const UP_LIMIT: ReasonAndMessage =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: ReasonAndMessage = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);

/// Applies stabilization and limits to the proposed replicas, and records them as a recommendation.
///
/// Upstream: `normalizeDesiredReplicas`, `normalizeDesiredReplicasWithBehaviors`.
pub(super) fn normalize_desired_replicas(
    proposed: i32,
    bounds: &Bounds<'_>,
    history: &mut StabilizationHistory,
    now: Timestamp,
) -> Normalized {
    let rules =
        bounds.behavior.and_then(|b| Some((&**b.scale_up.as_ref()?, &**b.scale_down.as_ref()?)));
    let (stabilized, reason, (replicas, limit)) = match rules {
        None => {
            let stabilized = history.stabilize_recommendation(proposed, bounds.window, now);
            (stabilized, DOWN_STABILIZED, convert_desired_replicas_with_rules(stabilized, bounds))
        }
        Some((up, down)) => {
            let default = i32::try_from(bounds.window.as_secs()).unwrap_or(i32::MAX);
            let up_window_seconds = up.stabilization_window_seconds.unwrap_or(0);
            let down_window_seconds = down.stabilization_window_seconds.unwrap_or(default);
            let stabilized = history.stabilize_recommendation_with_behaviors(
                bounds.current,
                proposed,
                up_window_seconds,
                down_window_seconds,
                now,
            );
            let reason = if proposed >= bounds.current { UP_STABILIZED } else { DOWN_STABILIZED };
            (
                stabilized,
                reason,
                convert_desired_replicas_with_behavior_rate(
                    stabilized,
                    bounds,
                    (up, down),
                    history,
                    now,
                ),
            )
        }
    };
    let able = if stabilized == proposed { READY } else { reason };
    Normalized { replicas, able, limited: replicas != stabilized, limit }
}

/// Applies the limits without `spec.behavior`: at most twice the current replicas or four, whichever is more.
/// The API server's default `behavior` has the same limits (`autoscaler` in `defaults/objects.rs` in
/// `evenkeel-kinds`).
/// Upstream: `convertDesiredReplicasWithRules`, `calculateScaleUpLimit`.
fn convert_desired_replicas_with_rules(
    proposed: i32,
    bounds: &Bounds<'_>,
) -> (i32, ReasonAndMessage) {
    let rate_limit = bounds.current.saturating_mul(2).max(4);
    let (max, reason) =
        if bounds.max > rate_limit { (rate_limit, UP_LIMIT) } else { (bounds.max, TOO_MANY) };
    if proposed < bounds.min {
        (bounds.min, TOO_FEW)
    } else if proposed > max {
        (max, reason)
    } else {
        (proposed, WITHIN)
    }
}

/// Applies the limits of `spec.behavior`, by the policies of the direction. Upstream:
/// `convertDesiredReplicasWithBehaviorRate`.
fn convert_desired_replicas_with_behavior_rate(
    proposed: i32,
    bounds: &Bounds<'_>,
    (up, down): (&HpaScalingRules, &HpaScalingRules),
    history: &StabilizationHistory,
    now: Timestamp,
) -> (i32, ReasonAndMessage) {
    let current = bounds.current;
    let period_start = |policy: &HpaScalingPolicy| {
        history.replicas_at_period_start(current, policy.period_seconds, now)
    };
    if proposed > current {
        let rate_limit = scale_up_limit(up, current, period_start).max(current);
        let (max, reason) =
            if bounds.max > rate_limit { (rate_limit, UP_LIMIT) } else { (bounds.max, TOO_MANY) };
        if proposed > max {
            return (max, reason);
        }
    } else if proposed < current {
        let rate_limit = scale_down_limit(down, current, period_start).min(current);
        let (min, reason) =
            if bounds.min < rate_limit { (rate_limit, DOWN_LIMIT) } else { (bounds.min, TOO_FEW) };
        if proposed < min {
            return (min, reason);
        }
    }
    (proposed, WITHIN)
}

/// Returns the maximum replicas by the `scaleUp` policies and `selectPolicy`; percentages are rounded up. Upstream:
/// `calculateScaleUpLimitWithScalingRules`.
fn scale_up_limit(
    rules: &HpaScalingRules,
    current: i32,
    period_start: impl Fn(&HpaScalingPolicy) -> i32,
) -> i32 {
    let to = rules.policies.iter().map(|policy| {
        let period_start = period_start(policy);
        match &*policy.type_ {
            "Percent" => {
                (f64::from(period_start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32
            }
            _ => period_start.saturating_add(policy.value),
        }
    });
    match &*rules.select_policy {
        "Disabled" => current,
        "Min" => to.min().unwrap_or(i32::MAX),
        _ => to.max().unwrap_or(i32::MIN),
    }
}

/// Returns the minimum replicas by the `scaleDown` policies. Upstream: `calculateScaleDownLimitWithBehaviors`.
fn scale_down_limit(
    rules: &HpaScalingRules,
    current: i32,
    period_start: impl Fn(&HpaScalingPolicy) -> i32,
) -> i32 {
    let to = rules.policies.iter().map(|policy| {
        let period_start = period_start(policy);
        match &*policy.type_ {
            "Percent" => (f64::from(period_start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            _ => period_start.saturating_sub(policy.value),
        }
    });
    match &*rules.select_policy {
        "Disabled" => current,
        "Min" => to.max().unwrap_or(i32::MIN),
        _ => to.min().unwrap_or(i32::MAX),
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
        Bounds { min: 2, max: 20, current, behavior, window: Duration::from_secs(300) }
    }

    #[test]
    fn default_limits_apply_without_behavior() {
        let to = |proposed, current| {
            let limited = normalize_desired_replicas(
                proposed,
                &bounds(current, None),
                &mut StabilizationHistory::default(),
                T0,
            );
            (limited.replicas, limited.limited, limited.limit.0)
        };
        assert_eq!(to(3, 3), (3, false, "DesiredWithinRange"));
        assert_eq!(to(1, 3), (2, true, "TooFewReplicas"));
        assert_eq!(to(9, 3), (6, true, "ScaleUpLimit"));
        assert_eq!(to(9, 1), (4, true, "ScaleUpLimit"));
        assert_eq!(to(99, 15), (20, true, "TooManyReplicas"));
    }

    #[test]
    fn scale_down_waits_for_the_stabilization_window() {
        let mut history = StabilizationHistory::default();
        history.record_initial_recommendation(8, T0);
        let limited = normalize_desired_replicas(3, &bounds(8, None), &mut history, at(100));
        assert_eq!((limited.replicas, limited.able.0), (8, "ScaleDownStabilized"));
        let limited = normalize_desired_replicas(3, &bounds(8, None), &mut history, at(400));
        assert_eq!((limited.replicas, limited.able.0), (3, "ReadyForNewScale"));
    }

    fn policy(type_: &str, value: i32, period: i32) -> Value {
        json!({"type": type_, "value": value, "periodSeconds": period})
    }

    #[test]
    fn scale_up_policies_limit_the_rate() {
        let both = json!([policy("Pods", 4, 15), policy("Percent", 100, 15)]);
        let down = json!({"selectPolicy": "Max", "policies": [policy("Percent", 100, 15)], "stabilizationWindowSeconds": 0});
        let to = |select: &str, policies: &Value, proposed, current| {
            let up = json!({"selectPolicy": select, "policies": policies, "stabilizationWindowSeconds": 0});
            let behavior = behavior(&up, &down);
            let limited = normalize_desired_replicas(
                proposed,
                &bounds(current, Some(&behavior)),
                &mut StabilizationHistory::default(),
                T0,
            );
            (limited.replicas, limited.limit.0)
        };
        assert_eq!(to("Max", &both, 19, 3), (7, "ScaleUpLimit"));
        assert_eq!(to("Max", &both, 19, 6), (12, "ScaleUpLimit"));
        assert_eq!(to("Min", &both, 19, 3), (6, "ScaleUpLimit"));
        assert_eq!(to("Disabled", &both, 19, 3), (3, "ScaleUpLimit"));
        assert_eq!(
            to("Max", &json!([policy("Percent", 10, 15)]), 19, 3),
            (4, "ScaleUpLimit"),
            "rounded up"
        );
        assert_eq!(to("Max", &both, 99, 15), (20, "TooManyReplicas"));
        assert_eq!(to("Max", &both, 5, 3), (5, "DesiredWithinRange"));
    }

    #[test]
    fn scale_down_policies_limit_the_rate() {
        let both = json!([policy("Pods", 4, 15), policy("Percent", 30, 15)]);
        let up = json!({"selectPolicy": "Max", "policies": [policy("Percent", 100, 15)], "stabilizationWindowSeconds": 0});
        let to = |select: &str, proposed, current| {
            let down =
                json!({"selectPolicy": select, "policies": both, "stabilizationWindowSeconds": 0});
            let behavior = behavior(&up, &down);
            let limited = normalize_desired_replicas(
                proposed,
                &bounds(current, Some(&behavior)),
                &mut StabilizationHistory::default(),
                T0,
            );
            (limited.replicas, limited.limit.0)
        };
        assert_eq!(to("Max", 2, 9), (5, "ScaleDownLimit"));
        assert_eq!(to("Max", 2, 19), (13, "ScaleDownLimit"));
        assert_eq!(to("Min", 2, 9), (6, "ScaleDownLimit"));
        assert_eq!(to("Disabled", 2, 9), (9, "ScaleDownLimit"));
        assert_eq!(to("Max", 0, 4), (2, "TooFewReplicas"));
    }

    #[test]
    fn replicas_added_within_the_period_use_up_the_policy() {
        let up = json!({"selectPolicy": "Max", "policies": [policy("Pods", 4, 60)], "stabilizationWindowSeconds": 0});
        let behavior = behavior(&up, &up);
        let mut history = StabilizationHistory::default();
        history.store_scale_event(3, 6, behavior.scale_up.as_deref(), T0);
        let to = |seconds| {
            normalize_desired_replicas(
                19,
                &bounds(6, Some(&behavior)),
                &mut history.clone(),
                at(seconds),
            )
            .replicas
        };
        assert_eq!(to(30), 7, "4 more than 3");
        assert_eq!(to(61), 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        #[test]
        fn replicas_stay_within_bounds_and_direction(proposed in 0i32..60, current in 2i32..=20, value in 1i32..200, pods: bool, select in 0usize..3, rules: bool) {
            let kind = if pods { "Pods" } else { "Percent" };
            let select = ["Max", "Min", "Disabled"][select];
            let one = json!({"selectPolicy": select, "policies": [policy(kind, value, 60)]});
            let behavior = behavior(&one, &one);
            let mut history = StabilizationHistory::default();
            history.record_initial_recommendation(current, T0);
            let bounds = bounds(current, rules.then_some(&behavior));
            let replicas = normalize_desired_replicas(proposed, &bounds, &mut history, at(1)).replicas;
            prop_assert!((2..=20).contains(&replicas));
            prop_assert!(proposed < current || replicas >= current);
            prop_assert!(proposed > current || replicas <= current);
        }
    }
}
