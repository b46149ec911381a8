//! Matching of pods and nodes: taints and tolerations here, node selectors and affinity in [`nodeaffinity`].
//!
//! Upstream: `k8s.io/component-helpers/scheduling/corev1`.

pub mod nodeaffinity;

use evenkeel_api::views::{Pod, Taint, Toleration};
use std::cmp::Ordering;

/// Key of the taint of a node that is out of service. Its terminating pods are deleted by force, and its volumes are
/// detached by force.
///
/// Upstream: `TaintNodeOutOfService`.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// Index function of pods by node: calls `key` with the name of the pod's node if the pod is bound.
pub fn node_key(pod: &Pod, key: &mut dyn FnMut(&str)) {
    if !pod.spec.node_name.is_empty() {
        key(&pod.spec.node_name);
    }
}

/// Feature gate of the operators `Lt` and `Gt` of tolerations (KEP-5471).
pub const COMPARISON_GATE: &str = "TaintTolerationComparisonOperators";

/// Operators of tolerations that match taints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TolerationOperators {
    /// `Equal` and `Exists`. Tolerations with another operator tolerate nothing.
    #[default]
    EqualAndExists,
    /// Also `Lt` and `Gt`, which compare numbers: the feature gate [`COMPARISON_GATE`] is on.
    WithComparison,
}

impl TolerationOperators {
    /// Returns the operators with or without comparison.
    pub fn with_comparison(enabled: bool) -> Self {
        if enabled { Self::WithComparison } else { Self::EqualAndExists }
    }

    /// Returns whether the toleration tolerates the taint.
    ///
    /// Upstream: `ToleratesTaint`.
    pub fn tolerates(self, toleration: &Toleration, taint: &Taint) -> bool {
        (toleration.effect.is_empty() || toleration.effect == taint.effect)
            && (toleration.key.is_empty() || toleration.key == taint.key)
            && match &*toleration.operator {
                "" | "Equal" => toleration.value == taint.value,
                "Exists" => true,
                "Lt" => self.compares(taint, toleration, Ordering::Less),
                "Gt" => self.compares(taint, toleration, Ordering::Greater),
                _ => false,
            }
    }

    /// Returns whether the comparison of the value of the taint with the value of the toleration has this result. The
    /// comparison fails if a value is not an integer.
    ///
    /// Upstream: `compareNumericValues`.
    fn compares(self, taint: &Taint, toleration: &Toleration, ordering: Ordering) -> bool {
        let numbers = decimal_integer(&taint.value).zip(decimal_integer(&toleration.value));
        self == Self::WithComparison
            && numbers.is_some_and(|(taint, toleration)| taint.cmp(&toleration) == ordering)
    }

    /// Returns whether one of the tolerations tolerates the taint.
    ///
    /// Upstream: `TolerationsTolerateTaint`.
    pub fn is_tolerated(self, tolerations: &[Toleration], taint: &Taint) -> bool {
        tolerations.iter().any(|toleration| self.tolerates(toleration, taint))
    }

    /// Returns the first `NoSchedule` or `NoExecute` taint that no toleration tolerates.
    ///
    /// Upstream: `FindMatchingUntoleratedTaint`.
    pub fn find_untolerated_taint<'a>(
        self,
        tolerations: &[Toleration],
        taints: &'a [Taint],
    ) -> Option<&'a Taint> {
        // A `PreferNoSchedule` taint repels no pod.
        let repels_pods = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
        taints.iter().filter(repels_pods).find(|taint| !self.is_tolerated(tolerations, taint))
    }
}

/// Parses an integer of 64 bits that is written without a plus sign, leading zeros or a negative zero.
///
/// Upstream: `IsDecimalInteger`.
fn decimal_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_canonical = text == "0" || digits.starts_with(|first: char| matches!(first, '1'..='9'));
    is_canonical.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_compare_integers_with_the_value_of_the_taint() {
        use TolerationOperators::{EqualAndExists, WithComparison};
        // Operator and value of the toleration, value of the taint, and whether it is tolerated with comparison.
        let table = [
            ("Lt", "950", "900", true),
            ("Lt", "950", "950", false),
            ("Lt", "950", "951", false),
            ("Gt", "950", "951", true),
            ("Gt", "950", "950", false),
            ("Gt", "950", "949", false),
            ("Gt", "-5", "-4", true),
            ("Lt", "0", "-1", true),
            ("Gt", "9223372036854775806", "9223372036854775807", true),
            // Values that are not 64-bit integers, or have another notation.
            ("Lt", "9223372036854775808", "1", false),
            ("Gt", "1", "9223372036854775808", false),
            ("Lt", "0950", "900", false),
            ("Lt", "950", "0900", false),
            ("Lt", "+950", "900", false),
            ("Gt", "-0", "1", false),
            ("Gt", "-", "1", false),
            ("Gt", "", "1", false),
            ("Gt", "1", "", false),
            ("Lt", "9.5", "1", false),
            ("Lt", "high", "low", false),
            ("lt", "950", "900", false),
            ("In", "950", "950", false),
        ];
        for (operator, value, of_taint, expected) in table {
            let toleration = Toleration {
                key: "sla".into(),
                operator: operator.into(),
                value: value.into(),
                ..Toleration::default()
            };
            let taint = Taint {
                key: "sla".into(),
                value: of_taint.into(),
                effect: "NoExecute".into(),
                ..Taint::default()
            };
            let case = format!("{of_taint:?} {operator} {value:?}");
            assert_eq!(WithComparison.tolerates(&toleration, &taint), expected, "{case}");
            assert!(!EqualAndExists.tolerates(&toleration, &taint), "{case}");
            let others = [
                Toleration { key: "other".into(), ..toleration.clone() },
                Toleration { effect: "NoSchedule".into(), ..toleration.clone() },
            ];
            assert!(!WithComparison.is_tolerated(&others, &taint), "{case}");
            let taints = [taint];
            let untolerated = WithComparison.find_untolerated_taint(&[toleration], &taints);
            assert_eq!(untolerated.is_none(), expected, "{case}");
        }
    }

    #[test]
    fn equal_and_exists_match_with_and_without_comparison() {
        let table =
            [("", "a", true), ("Equal", "a", true), ("Equal", "b", false), ("Exists", "", true)];
        for (operator, value, expected) in table {
            let toleration = Toleration {
                operator: operator.into(),
                value: value.into(),
                ..Toleration::default()
            };
            let taint = Taint { key: "k".into(), value: "a".into(), ..Taint::default() };
            for enabled in [false, true] {
                let operators = TolerationOperators::with_comparison(enabled);
                assert_eq!(
                    operators.tolerates(&toleration, &taint),
                    expected,
                    "{operator} {value}"
                );
            }
        }
    }
}
