//! Eviction of a pod by the taints of its node. Upstream: `processPodOnNode`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | taints with `effect`: `NoExecute` | `no_execute_taints` |
//! | `tolerations`: `key`, `operator`, `value`, `effect` | `min_toleration_time`, `../../../../evenkeel-component-helpers/src/scheduling/corev1/mod.rs` |
//! | `tolerationSeconds`: the shortest of the matching tolerations; zero and negative values | `min_toleration_time` |
//! | a scheduled eviction keeps its time, or is cancelled | `verdict`, `plan` |
//! | condition `DisruptionTarget`: `DeletionByTaintManager` | `plan` |
//! | `not-ready` and `unreachable` with `NoExecute` | `../nodelifecycle/plan/no_execute.rs` |
//! | 300 s for `not-ready` and `unreachable` by default (`DefaultTolerationSeconds`) | `../../../../evenkeel-apiserver/src/admission/pods.rs` |

use crate::{
    disruption::{DisruptionReason, add_condition},
    wire,
};
use evenkeel_api::{
    View,
    time::{SignedDuration, Timestamp, saturating_add},
    views::{Pod, Taint, Toleration},
};
use evenkeel_component_helpers::scheduling::corev1::TolerationOperators;
use evenkeel_runtime::plan::{Delete, EventRecord, Key, Outcomes, Plan, Target};
use std::{sync::Arc, time::Duration};

/// Reason and message of the condition of pods that a taint evicts.
const DISRUPTION_CONDITION: DisruptionReason = DisruptionReason {
    reason: "DeletionByTaintManager",
    message: "Taint manager: deleting due to NoExecute taint",
    has_generation: true,
};
/// Reason of the events about evictions.
const EVENT_REASON: &str = "TaintManagerEviction";

/// A pod and the taints that it must tolerate.
pub(super) struct Observed {
    pub(super) key: Key,
    /// The pod. `None` if it is deleted.
    pub(super) pod: Option<Arc<Pod>>,
    /// The node's `NoExecute` taints. `None` if the node does not exist. Upstream: `getNoExecuteTaints`.
    pub(super) taints: Option<Box<[Taint]>>,
    /// The eviction that an earlier reconciliation decided or scheduled, unless it succeeded.
    pub(super) scheduled_eviction: Option<Eviction>,
    /// The operators of tolerations that match taints.
    pub(super) operators: TolerationOperators,
}

/// An eviction that is scheduled, or due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Eviction {
    pub(super) due: Timestamp,
}

/// Decision about a pod. The pod's next reconciliation receives it. Upstream: `taintEvictionQueue`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The pod stays.
    #[default]
    Stay,
    /// The pod is evicted later.
    Wait(Eviction),
    /// The pod is evicted now.
    Evict(Eviction),
}

impl Verdict {
    /// Returns the eviction, whether it is due or not.
    pub(super) fn eviction(&self) -> Option<Eviction> {
        match self {
            Self::Stay => None,
            Self::Wait(eviction) | Self::Evict(eviction) => Some(*eviction),
        }
    }
}

/// Returns whether an eviction was due and succeeded.
pub(super) fn is_evicted(verdict: &Verdict, outcomes: &Outcomes) -> bool {
    matches!(verdict, Verdict::Evict(_)) && outcomes.first_error().is_none()
}

/// Returns the `NoExecute` taints.
pub(super) fn no_execute_taints(taints: &[Taint]) -> impl Iterator<Item = &Taint> {
    taints.iter().filter(|taint| &*taint.effect == "NoExecute")
}

/// Decides whether and when to evict the pod. While the pod tolerates all taints for a limited time, a scheduled
/// eviction keeps its time, even if taints or tolerations change. Upstream: `processPodOnNode`.
pub(super) fn verdict(observed: &Observed, now: Timestamp) -> Verdict {
    let Some(pod) = observed.pod.as_ref().filter(|pod| !pod.meta.deleting()) else {
        return Verdict::Stay;
    };
    let evict_when_due = |eviction: Eviction| {
        if eviction.due <= now { Verdict::Evict(eviction) } else { Verdict::Wait(eviction) }
    };
    let Some(taints) = &observed.taints else {
        return observed.scheduled_eviction.map_or(Verdict::Stay, evict_when_due);
    };
    match min_toleration_time(&pod.spec.tolerations, taints, observed.operators) {
        TolerationTime::Forever => Verdict::Stay,
        TolerationTime::Zero => Verdict::Evict(Eviction { due: now }),
        TolerationTime::Limited(time) => {
            let due = saturating_add(now, time);
            evict_when_due(observed.scheduled_eviction.unwrap_or(Eviction { due }))
        }
    }
}

/// Time for which the pod tolerates all taints of its node.
enum TolerationTime {
    /// The pod does not tolerate a taint.
    Zero,
    /// The pod tolerates all taints for this time, the shortest `tolerationSeconds`.
    Limited(SignedDuration),
    /// The pod tolerates all taints, and no matching toleration has `tolerationSeconds`.
    Forever,
}

/// Returns the shortest `tolerationSeconds` of the tolerations that match the taints. Negative values count as 0.
/// Upstream: `GetMatchingTolerations`, `getMinTolerationTime`.
fn min_toleration_time(
    tolerations: &[Toleration],
    taints: &[Taint],
    operators: TolerationOperators,
) -> TolerationTime {
    let mut min_seconds: Option<i64> = None;
    for taint in taints {
        // As upstream, only the first matching toleration of each taint counts.
        let is_matching = |toleration: &&Toleration| operators.tolerates(toleration, taint);
        let Some(toleration) = tolerations.iter().find(is_matching) else {
            return TolerationTime::Zero;
        };
        if let Some(seconds) = toleration.toleration_seconds {
            min_seconds = Some(min_seconds.map_or(seconds, |min| min.min(seconds)));
        }
    }
    match min_seconds {
        None => TolerationTime::Forever,
        Some(seconds) => TolerationTime::Limited(SignedDuration::from_secs(seconds.max(0))),
    }
}

/// Returns the actions for a decision.
pub(super) fn plan(observed: &Observed, verdict: Verdict, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let event = |verb: &str| {
        // As upstream, the event names the pod without a uid, because the pod may be deleted.
        let target = Target::new(Pod::kind(), &observed.key.namespace, &observed.key.name, "");
        EventRecord::normal(target, EVENT_REASON, format!("{verb} Pod {}", observed.key))
    };
    let is_scheduled = observed.scheduled_eviction.is_some_and(|eviction| eviction.due > now);
    match (verdict, &observed.pod) {
        (Verdict::Stay, _) | (_, None) => {
            if is_scheduled {
                plan.push(event("Cancelling deletion of"));
            }
        }
        (Verdict::Wait(eviction), _) => {
            let remaining =
                Duration::try_from(eviction.due.duration_since(now)).unwrap_or_default();
            plan.requeue_after(remaining);
        }
        (Verdict::Evict(_), Some(pod)) => {
            // An immediate eviction cancels the scheduled one, and records an event about the cancellation.
            if is_scheduled {
                plan.push(event("Cancelling deletion of"));
            }
            plan.push(event("Marking for deletion"));
            if let Some(patch) = add_condition(pod, DISRUPTION_CONDITION, now) {
                plan.push(patch);
            }
            plan.push(Delete::new(wire::target(&**pod)));
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, pod};
    use evenkeel_runtime::plan::{Action, lint};
    use proptest::prelude::*;

    fn taint(key: &str) -> Taint {
        Taint { key: key.into(), effect: "NoExecute".into(), ..Taint::default() }
    }

    fn toleration(key: &str, seconds: Option<i64>) -> Toleration {
        Toleration {
            key: key.into(),
            operator: "Exists".into(),
            toleration_seconds: seconds,
            ..Toleration::default()
        }
    }

    /// Returns a pod with these tolerations (key and seconds) on a node with these taints. `due` is the time of the
    /// scheduled eviction in seconds after `T0`, if any.
    fn observed(
        taints: &[&str],
        tolerations: &[(&str, Option<i64>)],
        due: Option<i64>,
    ) -> Observed {
        let mut pod = pod("p", None);
        pod.spec.tolerations = tolerations.iter().map(|(k, s)| toleration(k, *s)).collect();
        Observed {
            key: Key::new("ns", "p"),
            pod: Some(Arc::new(pod)),
            taints: Some(taints.iter().map(|key| taint(key)).collect()),
            scheduled_eviction: due.map(|seconds| Eviction { due: at(seconds) }),
            operators: TolerationOperators::default(),
        }
    }

    #[test]
    fn tolerations_that_compare_numbers_count_with_the_feature_gate() {
        let (stay, now) = (Verdict::Stay, Verdict::Evict(Eviction { due: T0 }));
        let wait = Verdict::Wait(Eviction { due: at(30) });
        // Operator, `tolerationSeconds`, value of the taint, and the verdicts with and without the gate.
        let table = [
            ("Gt", None, "950", stay, now),
            ("Gt", Some(30), "950", wait, now),
            ("Gt", None, "900", now, now),
            ("Lt", None, "850", stay, now),
            ("Lt", None, "high", now, now),
            ("Exists", None, "850", stay, stay),
        ];
        for (operator, seconds, value, with_gate, without_gate) in table {
            for (enabled, expected) in [(true, with_gate), (false, without_gate)] {
                let mut pod = pod("p", None);
                pod.spec.tolerations = [Toleration {
                    operator: operator.into(),
                    value: if operator == "Exists" { "" } else { "900" }.into(),
                    ..toleration("sla", seconds)
                }]
                .into();
                let operators = TolerationOperators::with_comparison(enabled);
                let taints = [Taint { value: value.into(), ..taint("sla") }].into();
                let observed = Observed {
                    pod: Some(Arc::new(pod)),
                    taints: Some(taints),
                    operators,
                    ..observed(&[], &[], None)
                };
                assert_eq!(verdict(&observed, T0), expected, "{operator} {value} {enabled}");
            }
        }
    }

    #[test]
    fn taints_evict_and_toleration_seconds_delay() {
        let (stay, now) = (Verdict::Stay, Verdict::Evict(Eviction { due: T0 }));
        let wait = |seconds| Verdict::Wait(Eviction { due: at(seconds) });
        // Pod and node, and the verdict at `T0`.
        let table = [
            (observed(&[], &[], None), stay),
            (observed(&["a"], &[], None), now),
            (observed(&["a"], &[("a", None)], None), stay),
            (observed(&["a"], &[("", None)], None), stay),
            (observed(&["a"], &[("a", Some(30))], None), wait(30)),
            (observed(&["a"], &[("a", Some(0))], None), now),
            (observed(&["a"], &[("a", Some(-1))], None), now),
            (observed(&["a", "b"], &[("a", Some(30)), ("b", Some(20))], None), wait(20)),
            (observed(&["a", "b"], &[("a", Some(30)), ("b", None)], None), wait(30)),
            (observed(&["a", "b"], &[("a", Some(30))], None), now),
            // A scheduled eviction keeps its time, whatever `tolerationSeconds` says now.
            (observed(&["a"], &[("a", Some(30))], Some(5)), wait(5)),
            (observed(&["a"], &[("a", Some(3))], Some(5)), wait(5)),
            (observed(&["a"], &[("a", Some(0))], Some(5)), wait(5)),
            (observed(&["a", "b"], &[("a", Some(-1)), ("b", Some(9))], Some(5)), wait(5)),
            // A taint that is not tolerated evicts immediately.
            (observed(&["a", "b"], &[("a", Some(30))], Some(5)), now),
            (observed(&["a"], &[("a", Some(30))], Some(0)), now),
            (observed(&["a"], &[("a", None)], Some(5)), stay),
            (observed(&[], &[("a", Some(30))], Some(5)), stay),
        ];
        for (number, (observed, want)) in table.iter().enumerate() {
            assert_eq!(verdict(observed, T0), *want, "{number}");
        }
        // If the node does not exist, a scheduled eviction keeps its time.
        let lost = Observed { taints: None, ..observed(&["a"], &[], Some(5)) };
        assert_eq!(verdict(&lost, T0), wait(5));
        assert_eq!(verdict(&Observed { scheduled_eviction: None, ..lost }, T0), stay);
    }

    fn events(plan: &Plan) -> Vec<&str> {
        let messages = plan.actions.iter().filter_map(|action| match action {
            Action::Event(event) => Some(&*event.message),
            _ => None,
        });
        messages.collect()
    }

    #[test]
    fn eviction_records_event_and_condition_and_deletes_the_pod() {
        let observed = observed(&["a"], &[], None);
        let plan = plan(&observed, verdict(&observed, T0), T0);
        assert_eq!(events(&plan), ["Marking for deletion Pod ns/p"]);
        assert!(matches!(&plan.actions[1..], [Action::Patch(_), Action::Delete(_)]), "{plan:?}");
        assert!(lint(&plan).is_empty());
    }

    #[test]
    fn earlier_eviction_cancels_the_scheduled_one() {
        let observed = observed(&["a"], &[], Some(5));
        let sooner = plan(&observed, verdict(&observed, T0), T0);
        let want = ["Cancelling deletion of Pod ns/p", "Marking for deletion Pod ns/p"];
        assert_eq!(events(&sooner), want);
        // The scheduled time has come.
        let due = plan(&observed, verdict(&observed, at(5)), at(5));
        assert_eq!(events(&due), want[1..]);
    }

    #[test]
    fn cancelled_eviction_is_reported() {
        let spared = observed(&[], &[], Some(5));
        let deleted = Observed { pod: None, taints: None, ..observed(&[], &[], Some(5)) };
        for observed in [spared, deleted] {
            let plan = plan(&observed, verdict(&observed, T0), T0);
            assert_eq!(events(&plan), ["Cancelling deletion of Pod ns/p"]);
            assert_eq!(plan.actions.len(), 1);
        }
        let untouched = observed(&[], &[], None);
        assert!(plan(&untouched, verdict(&untouched, T0), T0).is_nothing());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn toleration_seconds_delay_the_eviction(seconds in 1i64..1000, times in proptest::collection::vec(0i64..1000, 1..10)) {
            let mut times = times;
            times.sort_unstable();
            let mut scheduled = None;
            let mut first = None;
            for time in times {
                let observed = Observed { scheduled_eviction: scheduled, ..observed(&["a"], &[("a", Some(seconds))], None) };
                let start = *first.get_or_insert(time);
                match verdict(&observed, at(time)) {
                    Verdict::Wait(eviction) => {
                        prop_assert_eq!(eviction.due, at(start + seconds));
                        prop_assert!(time < start + seconds);
                        scheduled = Some(eviction);
                    }
                    Verdict::Evict(_) => {
                        prop_assert!(time >= start + seconds);
                        break;
                    }
                    Verdict::Stay => prop_assert!(false, "the toleration is limited"),
                }
            }
        }
    }
}
