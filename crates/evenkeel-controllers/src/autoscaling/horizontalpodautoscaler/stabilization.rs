//! Past recommendations, for the stabilization windows, and past scale events, for the rate limits of scaling
//! policies.
//!
//! Upstream: `stabilizeRecommendation`, `stabilizeRecommendationWithBehaviors`, `storeScaleEvent`.

use evenkeel_api::{
    time::{Timestamp, saturating_sub},
    views::HpaScalingRules,
};
use std::time::Duration;

/// A number of replicas and its time. Upstream: `timestampedRecommendation`, `timestampedScaleEvent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimestampedCount {
    replicas: i32,
    at: Timestamp,
}

/// Recommendations and scale events of one autoscaler. As upstream, a restart of the controller loses them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HpaHistory {
    /// Recommended replicas. Upstream: `recommendations`.
    recommendations: Vec<TimestampedCount>,
    /// Replicas added by each scale up. Upstream: `scaleUpEvents`.
    scale_up_events: Vec<TimestampedCount>,
    /// Replicas removed by each scale down. Upstream: `scaleDownEvents`.
    scale_down_events: Vec<TimestampedCount>,
}

/// Puts `new` in the place of the last outdated entry. Without an outdated one, appends it. This bounds the list to the
/// entries of one window.
fn replace_outdated(
    list: &mut Vec<TimestampedCount>,
    new: TimestampedCount,
    is_outdated: impl Fn(&TimestampedCount) -> bool,
) {
    match list.iter_mut().rev().find(|old| is_outdated(old)) {
        Some(outdated) => *outdated = new,
        None => list.push(new),
    }
}

/// Returns the time `seconds` before `now`.
fn seconds_before(now: Timestamp, seconds: i32) -> Timestamp {
    saturating_sub(now, Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

impl HpaHistory {
    /// Records the current replicas as the first recommendation. Upstream: `recordInitialRecommendation`.
    pub(super) fn record_initial_recommendation(&mut self, replicas: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push(TimestampedCount { replicas, at: now });
        }
    }

    /// For an HPA without `spec.behavior`: records the recommendation and returns the highest one of the last `window`.
    ///
    /// Upstream: `stabilizeRecommendation`.
    pub(super) fn stabilize_recommendation(
        &mut self,
        recommendation: i32,
        window: Duration,
        now: Timestamp,
    ) -> i32 {
        let cutoff = saturating_sub(now, window);
        // As upstream, an entry at the cutoff is in this window. In the functions below, it is not.
        let recent = self.recommendations.iter().filter(|old| old.at >= cutoff);
        let highest = recent.map(|old| old.replicas).fold(recommendation, i32::max);
        replace_outdated(
            &mut self.recommendations,
            TimestampedCount { replicas: recommendation, at: now },
            |old| old.at < cutoff,
        );
        highest
    }

    /// For an HPA with `spec.behavior`: records the recommendation and returns the stabilized one. The windows are
    /// `stabilizationWindowSeconds` of `scaleUp` and of `scaleDown`.
    ///
    /// Returns the lowest recommendation of the scale-up window, the new one included, if all of them are higher than
    /// `current_replicas`. Returns the highest one of the scale-down window if all of them are lower. Otherwise
    /// returns `current_replicas`.
    ///
    /// Upstream: `stabilizeRecommendationWithBehaviors`.
    pub(super) fn stabilize_recommendation_with_behaviors(
        &mut self,
        current_replicas: i32,
        recommendation: i32,
        up_window_seconds: i32,
        down_window_seconds: i32,
        now: Timestamp,
    ) -> i32 {
        let up_cutoff = seconds_before(now, up_window_seconds);
        let down_cutoff = seconds_before(now, down_window_seconds);
        let since = |cutoff: Timestamp| {
            self.recommendations.iter().filter(move |old| old.at > cutoff).map(|old| old.replicas)
        };
        let lowest = since(up_cutoff).fold(recommendation, i32::min);
        let highest = since(down_cutoff).fold(recommendation, i32::max);
        replace_outdated(
            &mut self.recommendations,
            TimestampedCount { replicas: recommendation, at: now },
            |old| old.at < up_cutoff && old.at < down_cutoff,
        );
        current_replicas.max(lowest).min(highest)
    }

    /// Returns the number of replicas `period_seconds` ago: the current number without the scale events since then.
    ///
    /// Upstream: `getReplicasChangePerPeriod`.
    pub(super) fn replicas_at_period_start(
        &self,
        current_replicas: i32,
        period_seconds: i32,
        now: Timestamp,
    ) -> i32 {
        let cutoff = seconds_before(now, period_seconds);
        let changed = |list: &[TimestampedCount]| -> i32 {
            let recent = list.iter().filter(|old| old.at > cutoff);
            recent.fold(0_i32, |sum, old| sum.saturating_add(old.replicas))
        };
        current_replicas
            .saturating_sub(changed(&self.scale_up_events))
            .saturating_add(changed(&self.scale_down_events))
    }

    /// Records a scale event. May overwrite an event that is older than the longest period in `rules`.
    ///
    /// Upstream: `storeScaleEvent`.
    pub(super) fn store_scale_event(
        &mut self,
        from: i32,
        to: i32,
        rules: Option<&HpaScalingRules>,
        now: Timestamp,
    ) {
        let policies = rules.map(|rules| &*rules.policies).unwrap_or_default();
        let longest = policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0);
        let cutoff = seconds_before(now, longest);
        let list = if to > from { &mut self.scale_up_events } else { &mut self.scale_down_events };
        let replicas = to.saturating_sub(from).saturating_abs();
        replace_outdated(list, TimestampedCount { replicas, at: now }, |old| old.at < cutoff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at};

    const WINDOW: Duration = Duration::from_secs(300);

    #[test]
    fn scale_down_uses_the_highest_recommendation_in_the_window() {
        let mut history = HpaHistory::default();
        history.record_initial_recommendation(5, T0);
        history.record_initial_recommendation(9, T0);
        assert_eq!(history.stabilize_recommendation(2, WINDOW, at(10)), 5);
        assert_eq!(history.stabilize_recommendation(3, WINDOW, at(300)), 5);
        assert_eq!(history.stabilize_recommendation(2, WINDOW, at(301)), 3, "the first is too old");
        assert_eq!(history.recommendations.len(), 3, "the outdated recommendation was replaced");
        assert_eq!(history.stabilize_recommendation(4, Duration::ZERO, at(301)), 4);
    }

    #[test]
    fn scale_up_and_scale_down_have_separate_windows() {
        let mut history = HpaHistory::default();
        history.record_initial_recommendation(4, T0);
        // Up immediately, down after a minute.
        assert_eq!(history.stabilize_recommendation_with_behaviors(4, 8, 0, 60, at(1)), 8);
        assert_eq!(
            history.stabilize_recommendation_with_behaviors(8, 2, 0, 60, at(30)),
            8,
            "8 was recommended within the window"
        );
        assert_eq!(history.stabilize_recommendation_with_behaviors(8, 2, 0, 60, at(62)), 2);
        // Up only after a minute of higher recommendations.
        assert_eq!(history.stabilize_recommendation_with_behaviors(2, 9, 60, 0, at(70)), 2);
        assert_eq!(history.stabilize_recommendation_with_behaviors(2, 9, 60, 0, at(125)), 9);
    }

    #[test]
    fn replicas_at_period_start_exclude_later_scale_events() {
        let rules: HpaScalingRules =
            HpaScalingRules { policies: Box::new([]), ..HpaScalingRules::default() };
        let mut history = HpaHistory::default();
        history.store_scale_event(2, 6, Some(&rules), T0);
        history.store_scale_event(6, 5, Some(&rules), at(10));
        assert_eq!(history.replicas_at_period_start(5, 60, at(20)), 2);
        assert_eq!(history.replicas_at_period_start(5, 15, at(20)), 6);
        assert_eq!(history.replicas_at_period_start(5, 5, at(20)), 5);
    }
}
