//! Faults of nodes that are in effect: those of their annotations, and those that Behaviors draw.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | an annotation takes precedence over Behaviors; `false` means no fault | `state` |
//! | for each kind of fault, the Behavior with the largest weight applies | `state` |
//! | the fault of a Behavior begins and ends by itself | `next_change` |
//! | a silent node writes nothing | `partition` |
//! | a node that is not ready, or under pressure, reports it | `health` |
//! | a node that is silent or not ready syncs no pods | `pod_sync_pause` |

use evenkeel_api::{time::Timestamp, views::Node};
use evenkeel_runtime::cache::Caches;
use serde_json::Value;
use std::{fmt, sync::Arc, time::Duration};

use crate::{
    annotations::{DISK_PRESSURE, MEMORY_PRESSURE, NOT_READY, PID_PRESSURE, SILENT},
    behaviors::{Behavior, Behaviors, parse_object, selecting_node, sort},
    faults::{FAULTS, FaultEnd, Health, NO_FAULT, fault},
};

/// Faults of nodes by their annotations, and by Behaviors. Clones share the Behaviors.
#[derive(Clone, Default)]
pub struct NodeFaults(Source);

/// Behaviors that make nodes fail.
#[derive(Clone, Default)]
enum Source {
    /// No Behavior: nodes do not fail.
    #[default]
    None,
    /// Current Behaviors of the cluster.
    Live(Behaviors),
    /// Fixed Behaviors, by precedence.
    Fixed(Arc<[Arc<Behavior>]>),
}

impl fmt::Debug for NodeFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeFaults").finish_non_exhaustive()
    }
}

impl NodeFaults {
    /// Follows the Behaviors of the cluster, whose definition may be installed later. The caller starts the caches.
    pub fn watch(caches: &Caches) -> Self {
        Self::of(Some(Behaviors::watch(caches)))
    }

    /// Returns the faults of these Behavior objects of the API server. Invalid Behaviors have no effect.
    pub fn of_objects<'a>(behaviors: impl IntoIterator<Item = &'a Value>) -> Self {
        let parsed = behaviors.into_iter().filter_map(parse_object);
        let mut failing: Vec<_> = parsed.filter(Behavior::fails_nodes).map(Arc::new).collect();
        sort(&mut failing);
        Self(Source::Fixed(failing.into()))
    }

    /// Follows these Behaviors; without Behaviors, only annotations set faults.
    pub(crate) fn of(behaviors: Option<Behaviors>) -> Self {
        Self(behaviors.map_or(Source::None, Source::Live))
    }

    /// Returns the end of a node's fault; `None` if it is not in effect. `annotation` is the full name of the
    /// annotation that sets it.
    pub fn fault(&self, node: &Node, annotation: &str, now: Timestamp) -> Option<FaultEnd> {
        state(node, &self.behaviors(node), annotation, now).end
    }

    /// Returns whether a Behavior gives a node this fault from time to time, even if the node does not have the fault
    /// now. `annotation` is the full name of the annotation that sets the fault.
    pub fn is_drawn(&self, node: &Node, annotation: &str) -> bool {
        let mut behaviors = self.behaviors(node).into_iter();
        behaviors.any(|behavior| behavior.node_fault(annotation).is_some())
    }

    /// Returns the end of the node's partition from the API server; `None` if it is not partitioned.
    pub(crate) fn partition(&self, node: &Node, now: Timestamp) -> Option<FaultEnd> {
        self.fault(node, SILENT, now)
    }

    /// Returns when the node's kubelet resumes the sync of its pods; `None` if the sync is not paused. A kubelet skips
    /// its pods while its container runtime is down.
    pub(crate) fn pod_sync_pause(&self, node: &Node, now: Timestamp) -> Option<FaultEnd> {
        let behaviors = self.behaviors(node);
        let ends = [SILENT, NOT_READY].map(|name| state(node, &behaviors, name, now).end);
        ends.into_iter().flatten().reduce(FaultEnd::max)
    }

    /// Returns the health that a node reports because of its faults.
    pub(crate) fn health(&self, node: &Node, now: Timestamp) -> Health {
        let behaviors = self.behaviors(node);
        let has = |name| state(node, &behaviors, name, now).end.is_some();
        Health {
            not_ready: has(NOT_READY),
            memory_pressure: has(MEMORY_PRESSURE),
            disk_pressure: has(DISK_PRESSURE),
            pid_pressure: has(PID_PRESSURE),
        }
    }

    /// Returns the time until the next fault of a node begins or ends by itself; `None` if none does.
    pub(crate) fn next_change(&self, node: &Node, now: Timestamp) -> Option<Duration> {
        let behaviors = self.behaviors(node);
        let changes =
            FAULTS.into_iter().filter_map(|name| state(node, &behaviors, name, now).until);
        changes.min().map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default())
    }

    /// Calls `changed` after each change of Behaviors that may make nodes fail.
    pub(crate) fn subscribe(&self, changed: impl Fn() + Send + Sync + 'static) {
        if let Source::Live(behaviors) = &self.0 {
            behaviors.subscribe_node_faults(changed);
        }
    }

    /// Returns the Behaviors that make a node fail, in ascending order of precedence.
    fn behaviors(&self, node: &Node) -> Vec<Arc<Behavior>> {
        match &self.0 {
            Source::None => Vec::new(),
            Source::Live(behaviors) => behaviors.of_node(node),
            Source::Fixed(failing) => selecting_node(failing, node),
        }
    }
}

/// State of one fault of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    /// End of the fault; `None` if it is not in effect.
    end: Option<FaultEnd>,
    /// Time of the next change without a change of objects; `None` without such a change.
    until: Option<Timestamp>,
}

/// Returns the state of a fault at a time. `behaviors` select the node and are sorted by precedence.
fn state(node: &Node, behaviors: &[Arc<Behavior>], annotation: &str, now: Timestamp) -> State {
    let annotations = &node.meta.annotations;
    match fault(annotations, annotation, now) {
        Some(end @ FaultEnd::Open) => return State { end: Some(end), until: None },
        Some(end @ FaultEnd::At(until)) => return State { end: Some(end), until: Some(until) },
        None if annotations.get(annotation) == Some(NO_FAULT) => return State::default(),
        // A fault that is over, or an invalid value, counts as an absent annotation.
        None => {}
    }
    let drawn = behaviors
        .iter()
        .rev()
        .find_map(|behavior| Some((behavior, behavior.node_fault(annotation)?)));
    let Some((behavior, fault)) = drawn else { return State::default() };
    let outage = fault.outage(behavior.seed, &node.meta.name, behavior.created, now);
    State { end: outage.is_on.then_some(FaultEnd::At(outage.until)), until: Some(outage.until) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View as _};
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn node(annotations: &[(&str, &str)]) -> Node {
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let node = json!({ "metadata": {
            "name": "n", "labels": { "pool": "spot" }, "annotations": annotations,
        } });
        Node::decode(node.to_string().as_bytes(), Encoding::Json).unwrap()
    }

    /// Returns a Behavior that begins at `at(0)`, with a fault of this kind and these times.
    fn behavior(name: &str, spec: &Value) -> Value {
        json!({
            "metadata": { "name": name, "creationTimestamp": "2027-01-15T08:00:00Z" }, "spec": spec,
        })
    }

    fn failing(kind: &str, between: &str, repair: &str) -> Value {
        json!([{ "kind": kind, "meanTimeBetweenFailures": between, "meanTimeToRepair": repair }])
    }

    /// Returns the second of the first fault. Tries each second.
    fn first(faults: &NodeFaults, node: &Node, annotation: &str) -> Option<i64> {
        (0..100_000).find(|second| faults.fault(node, annotation, at(*second)).is_some())
    }

    #[test]
    fn annotations_are_faults_until_their_end() {
        let faults = NodeFaults::default();
        let silent = node(&[(SILENT, "until 2027-01-15T08:00:05Z")]);
        assert_eq!(faults.partition(&silent, at(0)), Some(FaultEnd::At(at(5))));
        assert_eq!(faults.partition(&silent, at(5)), None);
        assert_eq!(faults.next_change(&silent, at(2)), Some(Duration::from_secs(3)));
        assert_eq!(faults.next_change(&silent, at(5)), None);
        assert_eq!(faults.partition(&node(&[(SILENT, "true")]), at(5)), Some(FaultEnd::Open));
        assert_eq!(faults.partition(&node(&[]), at(5)), None);
    }

    #[test]
    fn pods_are_synced_again_when_the_last_fault_is_over() {
        let faults = NodeFaults::default();
        let until = |second: u32| format!("until 2027-01-15T08:00:0{second}Z");
        let both = node(&[(SILENT, &until(3)), (NOT_READY, &until(7))]);
        for (now, end) in [(0, Some(7)), (4, Some(7)), (7, None)] {
            let end = end.map(|end| FaultEnd::At(at(end)));
            assert_eq!(faults.pod_sync_pause(&both, at(now)), end, "{now}");
        }
        let open = node(&[(SILENT, "true"), (NOT_READY, &until(7))]);
        assert_eq!(faults.pod_sync_pause(&open, at(8)), Some(FaultEnd::Open));
        assert_eq!(faults.pod_sync_pause(&node(&[(MEMORY_PRESSURE, "true")]), at(0)), None);
    }

    #[test]
    fn the_health_of_a_node_follows_its_faults() {
        let annotations = [(NOT_READY, "true"), (DISK_PRESSURE, "until 2027-01-15T08:00:05Z")];
        let node = node(&annotations);
        let health = |second| NodeFaults::default().health(&node, at(second));
        let both = Health { not_ready: true, disk_pressure: true, ..Health::default() };
        assert_eq!(health(0), both);
        assert_eq!(health(5), Health { disk_pressure: false, ..both });
    }

    #[test]
    fn a_behavior_begins_and_ends_faults_of_the_nodes_that_it_selects() {
        let spec = |pool: &str| {
            json!({
                "seed": 1, "nodes": { "selector": { "matchLabels": { "pool": pool } } },
                "nodeFaults": failing("silent", "10m", "2m"),
            })
        };
        let of_pool = |pool: &str| NodeFaults::of_objects([&behavior("b", &spec(pool))]);
        let (faults, node) = (of_pool("spot"), node(&[]));
        assert_eq!(first(&of_pool("other"), &node, SILENT), None);
        assert_eq!(first(&faults, &node, NOT_READY), None, "it is another kind");
        let begin = first(&faults, &node, SILENT).expect("a fault");
        assert!(begin > 0, "the node is well when the Behavior is created");
        assert!(faults.is_drawn(&node, SILENT) && !faults.is_drawn(&node, NOT_READY));
        assert!(!of_pool("other").is_drawn(&node, SILENT));
        // `next_change` returns each change, and the faults do not depend on when they are read.
        let mut now = at(0);
        let mut is_on = false;
        for _ in 0..20 {
            let next = now + faults.next_change(&node, now).expect("a change");
            assert!(next > now);
            let just_before = next - Duration::from_millis(1);
            assert_eq!(faults.partition(&node, just_before).is_some(), is_on);
            let end = is_on.then_some(FaultEnd::At(next));
            assert_eq!(faults.partition(&node, now), end);
            is_on = !is_on;
            now = next;
            assert_eq!(faults.partition(&node, now).is_some(), is_on);
        }
    }

    #[test]
    fn annotations_and_weights_decide_by_kind() {
        let always = "100000h";
        // One Behavior whose nodes nearly always have the fault from the first second on, and one whose nodes never
        // have it.
        let bad = |name: &str, weight: i64| {
            behavior(
                name,
                &json!({"weight": weight, "nodeFaults": failing("silent", "1s", always)}),
            )
        };
        let good = |name: &str, weight: i64| {
            behavior(
                name,
                &json!({"weight": weight, "nodeFaults": failing("silent", always, "1s")}),
            )
        };
        let other =
            behavior("c", &json!({"weight": 9, "nodeFaults": failing("not-ready", "1s", always)}));
        let invalid =
            behavior("d", &json!({"weight": 10, "nodeFaults": failing("silent", "soon", "1s")}));
        let until = "until 2027-01-15T08:10:00Z";
        for (behaviors, annotation, want) in [
            (vec![bad("a", 0)], None, true),
            (vec![bad("a", 0), good("b", 1)], None, false),
            (vec![bad("a", 1), good("b", 0)], None, true),
            (vec![bad("a", 0), good("b", 0)], None, true),
            (vec![bad("a", 0), other.clone()], None, true),
            (vec![bad("a", 0), invalid], None, true),
            (vec![other], None, false),
            (vec![bad("a", 0)], Some("false"), false),
            (vec![bad("a", 0)], Some("until 2027-01-15T08:00:00Z"), true),
            (vec![bad("a", 0)], Some("what"), true),
            (vec![good("a", 0)], Some("true"), true),
            (vec![good("a", 0)], Some(until), true),
            (vec![], None, false),
        ] {
            let faults = NodeFaults::of_objects(&behaviors);
            let annotations: Vec<_> = annotation.map(|value| (SILENT, value)).into_iter().collect();
            let found = faults.partition(&node(&annotations), at(300)).is_some();
            assert_eq!(found, want, "{behaviors:?} {annotation:?}");
        }
    }
}
