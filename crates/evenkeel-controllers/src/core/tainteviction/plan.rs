//! Eviction of a pod by the taints of its node. Upstream: `processPodOnNode`.
//!
//! | documented | where |
//! |---|---|
//! | taints with `effect`: `NoExecute` | `evicting` |
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
use evenkeel_component_helpers::scheduling::corev1::tolerates;
use evenkeel_runtime::plan::{Delete, EventRecord, Key, Outcomes, Plan, Target};
use std::{sync::Arc, time::Duration};

const WHY: DisruptionReason = DisruptionReason {
    reason: "DeletionByTaintManager",
    message: "Taint manager: deleting due to NoExecute taint",
};
const EVENT: &str = "TaintManagerEviction";

/// A pod and the taints that it must tolerate.
pub(super) struct Observed {
    pub(super) key: Key,
    /// The pod; `None` if it is deleted.
    pub(super) pod: Option<Arc<Pod>>,
    /// The node's `NoExecute` taints; `None` if the node does not exist. Upstream: `getNoExecuteTaints`.
    pub(super) taints: Option<Box<[Taint]>>,
    /// The eviction that an earlier pass scheduled.
    pub(super) pending: Option<Pending>,
}

/// A scheduled eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) due: Timestamp,
}

/// Decision about a pod. The pod's next pass receives it. Upstream: `taintEvictionQueue`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The pod stays.
    #[default]
    Stay,
    /// The pod is evicted later.
    Wait(Pending),
    /// The pod is evicted now.
    Evict(Pending),
}

impl Verdict {
    /// Returns the eviction that is scheduled or due.
    pub(super) fn pending(&self) -> Option<Pending> {
        match self {
            Self::Stay => None,
            Self::Wait(pending) | Self::Evict(pending) => Some(*pending),
        }
    }
}

/// Whether the decided eviction succeeded. Until it does, it stays scheduled.
pub(super) fn is_evicted(verdict: &Verdict, outcomes: &Outcomes) -> bool {
    matches!(verdict, Verdict::Evict(_)) && outcomes.first_error().is_none()
}

/// Returns the `NoExecute` taints.
pub(super) fn evicting(taints: &[Taint]) -> impl Iterator<Item = &Taint> {
    taints.iter().filter(|taint| &*taint.effect == "NoExecute")
}

/// Decides about the pod. As upstream, a scheduled eviction keeps its time as long as all taints are tolerated for
/// some time, even if taints or tolerations change. Upstream: `processPodOnNode`.
pub(super) fn verdict(observed: &Observed, now: Timestamp) -> Verdict {
    let Some(pod) = observed.pod.as_ref().filter(|pod| !pod.meta.deleting()) else {
        return Verdict::Stay;
    };
    let at = |pending: Pending| {
        if pending.due <= now { Verdict::Evict(pending) } else { Verdict::Wait(pending) }
    };
    let Some(taints) = &observed.taints else { return observed.pending.map_or(Verdict::Stay, at) };
    match min_toleration_time(&pod.spec.tolerations, taints) {
        Tolerated::Forever => Verdict::Stay,
        Tolerated::Not => Verdict::Evict(Pending { due: now }),
        Tolerated::For(time) => {
            let due = saturating_add(now, time);
            at(observed.pending.unwrap_or(Pending { due }))
        }
    }
}

/// Duration for which all taints are tolerated.
enum Tolerated {
    /// A taint is not tolerated.
    Not,
    For(SignedDuration),
    Forever,
}

/// Returns the shortest `tolerationSeconds` of the matching tolerations; negative values count as 0. Upstream:
/// `GetMatchingTolerations`, `getMinTolerationTime`.
fn min_toleration_time(tolerations: &[Toleration], taints: &[Taint]) -> Tolerated {
    let mut least: Option<i64> = None;
    for taint in taints {
        // As upstream, the first matching toleration counts.
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint))
        else {
            return Tolerated::Not;
        };
        if let Some(seconds) = toleration.toleration_seconds {
            least = Some(least.map_or(seconds, |least| least.min(seconds)));
        }
    }
    match least {
        None => Tolerated::Forever,
        Some(seconds) => Tolerated::For(SignedDuration::from_secs(seconds.max(0))),
    }
}

/// Returns the actions for a decision.
pub(super) fn plan(observed: &Observed, verdict: Verdict, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let event = |verb: &str| {
        // As upstream, the event names the pod without a uid, because the pod may be deleted.
        let target = Target::new(Pod::kind(), &observed.key.namespace, &observed.key.name, "");
        EventRecord::normal(target, EVENT, format!("{verb} Pod {}", observed.key))
    };
    let waits = observed.pending.is_some_and(|pending| pending.due > now);
    match (verdict, &observed.pod) {
        (Verdict::Stay, _) | (_, None) => {
            if waits {
                plan.push(event("Cancelling deletion of"));
            }
        }
        (Verdict::Wait(pending), _) => {
            let remaining = Duration::try_from(pending.due.duration_since(now)).unwrap_or_default();
            plan.requeue_after(remaining);
        }
        (Verdict::Evict(_), Some(pod)) => {
            // An immediate eviction cancels the scheduled one, and records an event about that.
            if waits {
                plan.push(event("Cancelling deletion of"));
            }
            plan.push(event("Marking for deletion"));
            if let Some(patch) = add_condition(pod, WHY, now) {
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

    /// Returns a pod with these tolerations (key and seconds) on a node with these taints. An eviction is scheduled
    /// if `due`.
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
            pending: due.map(|seconds| Pending { due: at(seconds) }),
        }
    }

    #[test]
    fn taints_evict_and_toleration_seconds_delay() {
        let (stay, now) = (Verdict::Stay, Verdict::Evict(Pending { due: T0 }));
        let wait = |seconds| Verdict::Wait(Pending { due: at(seconds) });
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
            // A taint that is not tolerated evicts at once.
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
        assert_eq!(verdict(&Observed { pending: None, ..lost }, T0), stay);
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
        let gone = Observed { pod: None, taints: None, ..observed(&[], &[], Some(5)) };
        for observed in [spared, gone] {
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
            let mut pending = None;
            let mut first = None;
            for time in times {
                let observed = Observed { pending, ..observed(&["a"], &[("a", Some(seconds))], None) };
                let start = *first.get_or_insert(time);
                match verdict(&observed, at(time)) {
                    Verdict::Wait(waits) => {
                        prop_assert_eq!(waits.due, at(start + seconds));
                        prop_assert!(time < start + seconds);
                        pending = Some(waits);
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
