//! Numbers, durations and selectors in descriptions and messages.

use evenkeel_api::{
    duration,
    selector::{Operator, Selector},
};
use std::time::Duration;

/// Formats a count: `1 pod`, `3 pods`.
pub(crate) fn count(n: i64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Converts a length to a signed number, saturating.
pub(crate) fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Formats a duration as Go does, rounded up to seconds: `9m30s`.
pub(crate) fn go_duration(time: Duration) -> String {
    // After the printed time, the described event must have happened.
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    duration::format(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000_000))
}

/// Formats a label selector as Go's `%v`, which upstream puts into messages.
pub(crate) fn selector(selector: &Selector) -> String {
    if selector.is_nothing() && selector.error().is_none() {
        return "nil".to_owned();
    }
    let labels: String =
        selector.match_labels().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.requirements().iter().filter_map(|requirement| {
        let operator = match requirement.operator() {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            _ => return None,
        };
        let key = requirement.key();
        let values = requirement.values().join(" ");
        Some(format!(
            "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},"
        ))
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::label;

    #[test]
    fn selector_has_the_format_of_gos_percent_v() {
        assert_eq!(selector(&Selector::nothing()), "nil");
        assert_eq!(
            selector(&Selector::from_map(&label("app", "web"))),
            "&LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}"
        );
        assert_eq!(
            selector(&Selector::parse("app in (a,b)").unwrap()),
            "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:app,Operator:In,Values:[a b],},},}"
        );
    }

    #[test]
    fn counts_have_plurals_and_durations_round_up() {
        assert_eq!((&*count(1, "pod"), &*count(0, "pod")), ("1 pod", "0 pods"));
        assert_eq!(go_duration(Duration::from_millis(569_100)), "9m30s");
        assert_eq!(go_duration(Duration::ZERO), "0s");
    }
}
