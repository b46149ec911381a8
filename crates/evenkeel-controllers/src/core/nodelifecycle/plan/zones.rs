//! Zone disruption: states of zones, and the rate at which their nodes are tainted for eviction.
//!
//! The controller assumes that a few nodes that are not ready have failed, but that many at the same time indicate a
//! network partition. Each zone's state therefore sets its eviction rate, and evictions stop when no zone has
//! a ready node.

use super::{super::Options, health::Moment};
use evenkeel_api::{StrMap, Text, time::SignedDuration, views::Node};
use std::collections::{BTreeMap, VecDeque};

/// Label of nodes that do not count towards the state of their zone. Upstream: `labelNodeDisruptionExclusion`.
const DISRUPTION_EXCLUSION: &str = "node.kubernetes.io/exclude-disruption";

/// State of a zone. Upstream: `ZoneState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZoneState {
    /// The state before the monitor's first pass.
    Initial,
    /// A node is ready, and at most two nodes or fewer than `--unhealthy-zone-threshold` of all are not. Also a zone
    /// without counted nodes.
    Normal,
    /// A node is ready, but more than two nodes, and at least `--unhealthy-zone-threshold` of all, are not.
    PartialDisruption,
    /// No node is ready.
    FullDisruption,
}

/// Change of the cluster's disruption state, for all zones together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisruptionChange {
    /// Evictions continue, or stay stopped.
    None,
    /// No zone has a ready node: `NoExecute` taints are removed and none is added. Upstream: master disruption
    /// mode.
    EnteredFullDisruption,
    /// A node is ready again: the probe time of all nodes is reset to now.
    LeftFullDisruption,
}

/// Numbers of ready and of other nodes of a zone, without excluded nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NodeCounts {
    pub(crate) ready: usize,
    pub(crate) not_ready: usize,
}

impl NodeCounts {
    /// Returns the number of counted nodes, ready or not.
    pub(crate) fn total(self) -> usize {
        self.ready + self.not_ready
    }

    /// Returns the percentage of ready nodes; 100 for an empty zone.
    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes")]
    pub(crate) fn percent_ready(self) -> f64 {
        if self.total() == 0 { 100.0 } else { 100.0 * self.ready as f64 / self.total() as f64 }
    }

    /// Returns the state of a zone with these counts. Upstream: `ComputeZoneState`.
    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes")]
    fn zone_state(self, options: &Options) -> ZoneState {
        let Self { ready, not_ready } = self;
        // As upstream, 32-bit floats: 64-bit floats give other results at thresholds such as 0.55.
        let ratio = not_ready as f32 / self.total() as f32;
        if ready == 0 && not_ready > 0 {
            ZoneState::FullDisruption
        } else if not_ready > 2 && ratio >= options.unhealthy_zone_threshold {
            ZoneState::PartialDisruption
        } else {
            ZoneState::Normal
        }
    }
}

/// Returns the key of a node's zone. Empty without labels. Upstream: `GetZoneKey`.
pub(crate) fn zone_key(labels: &StrMap) -> Text {
    let label = |beta, stable| labels.get(beta).or_else(|| labels.get(stable)).unwrap_or_default();
    let zone = label("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
    let region = label("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");
    if zone.is_empty() && region.is_empty() {
        return Text::new();
    }
    // Labels have no null character, so different zones have different keys.
    format!("{region}:\0:{zone}").into()
}

/// Returns whether the node counts towards the state of its zone.
pub(crate) fn counts_for_disruption(node: &Node) -> bool {
    node.meta.labels.get(DISRUPTION_EXCLUSION).is_none()
}

/// All zones by key, each with its state, queue and rate limiter.
#[derive(Debug, Default)]
pub(crate) struct Zones(BTreeMap<Text, Zone>);

/// A zone with at least one node.
#[derive(Debug)]
struct Zone {
    state: ZoneState,
    /// Nodes to be tainted, in order of arrival. Upstream: `zoneNoExecuteTainter`.
    queue: VecDeque<Text>,
    rate_limiter: RateLimiter,
}

impl Zones {
    /// Adds a zone if it is new. Returns whether it was new. Upstream: `addPodEvictorForNewZone`.
    pub(crate) fn add(&mut self, zone: &str, options: &Options, now: Moment) -> bool {
        if self.0.contains_key(zone) {
            return false;
        }
        let rate_limiter = RateLimiter::new(options.eviction_rate, now);
        let new = Zone { state: ZoneState::Initial, queue: VecDeque::new(), rate_limiter };
        self.0.insert(zone.into(), new);
        true
    }

    /// Removes zones without nodes and returns their keys.
    pub(crate) fn remove_empty(&mut self, has_nodes: impl Fn(&str) -> bool) -> Vec<Text> {
        let removed: Vec<Text> = self.0.keys().filter(|zone| !has_nodes(zone)).cloned().collect();
        self.0.retain(|zone, _| has_nodes(zone));
        removed
    }

    /// Returns the state of a zone.
    pub(crate) fn state(&self, zone: &str) -> ZoneState {
        self.0.get(zone).map_or(ZoneState::Initial, |zone| zone.state)
    }

    /// Enqueues a node to be tainted once the zone's rate limiter allows it. A queued node keeps its position.
    pub(crate) fn enqueue(&mut self, zone: &str, node: &str) {
        if let Some(zone) = self.0.get_mut(zone)
            && !zone.queue.iter().any(|waiting| &**waiting == node)
        {
            zone.queue.push_back(node.into());
        }
    }

    /// Removes a node from the queues of all zones.
    pub(crate) fn dequeue(&mut self, node: &str) {
        for zone in self.0.values_mut() {
            zone.queue.retain(|waiting| &**waiting != node);
        }
    }

    /// Dequeues the nodes that the rate limiters release now. Upstream: `doNoExecuteTaintingPass`.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<Text> {
        let mut due = Vec::new();
        for zone in self.0.values_mut() {
            while !zone.queue.is_empty() && zone.rate_limiter.try_accept(now) {
                due.extend(zone.queue.pop_front());
            }
        }
        due
    }

    /// Returns the time at which the next node can be released, if any is queued.
    pub(crate) fn next_due(&self, now: Moment) -> Option<Moment> {
        let waiting = self.0.values().filter(|zone| !zone.queue.is_empty());
        waiting.filter_map(|zone| zone.rate_limiter.next_token_at(now)).min()
    }

    /// Updates all zones' states and rates. A zone without counted nodes is normal. Upstream: `handleDisruption`,
    /// `setLimiterInZone`.
    pub(crate) fn handle_disruption(
        &mut self,
        counts: &BTreeMap<Text, NodeCounts>,
        options: &Options,
        now: Moment,
    ) -> DisruptionChange {
        let states: BTreeMap<&str, ZoneState> = counts
            .iter()
            .filter(|(_, count)| count.total() > 0)
            .map(|(zone, count)| (&**zone, count.zone_state(options)))
            .collect();
        let is_fully_disrupted = |state: ZoneState| state == ZoneState::FullDisruption;
        let all_fully_disrupted =
            !states.is_empty() && states.values().all(|state| is_fully_disrupted(*state));
        let mut before = self.0.iter().filter(|(zone, _)| states.contains_key(&***zone));
        let all_were_fully_disrupted =
            !states.is_empty() && before.all(|(_, zone)| is_fully_disrupted(zone.state));
        if all_fully_disrupted {
            for zone in self.0.values_mut() {
                zone.state = ZoneState::FullDisruption;
                zone.rate_limiter.set_rate(0.0, now);
            }
            return if all_were_fully_disrupted {
                DisruptionChange::None
            } else {
                DisruptionChange::EnteredFullDisruption
            };
        }
        for (name, zone) in &mut self.0 {
            let state = states.get(&**name).copied().unwrap_or(ZoneState::Normal);
            let size = counts.get(name).copied().unwrap_or_default().total();
            zone.state = state;
            zone.rate_limiter.set_rate(eviction_rate(state, size, options), now);
        }
        if all_were_fully_disrupted {
            DisruptionChange::LeftFullDisruption
        } else {
            DisruptionChange::None
        }
    }
}

/// Returns the nodes per second to taint in a zone of this state and size. Upstream: `setLimiterInZone`,
/// `ReducedQPSFunc`, `HealthyQPSFunc`.
fn eviction_rate(state: ZoneState, size: usize, options: &Options) -> f32 {
    match state {
        ZoneState::PartialDisruption if size > options.large_cluster_size => {
            options.secondary_eviction_rate
        }
        ZoneState::PartialDisruption => 0.0,
        // Another zone has ready nodes, so the nodes of a zone without any have failed and are tainted.
        ZoneState::Initial | ZoneState::Normal | ZoneState::FullDisruption => options.eviction_rate,
    }
}

/// Token bucket of size one: one node immediately, then `per_second` nodes each second.
#[derive(Debug)]
struct RateLimiter {
    per_second: f32,
    /// Time from which the next token is available.
    next_token: Moment,
}

impl RateLimiter {
    fn new(per_second: f32, now: Moment) -> Self {
        Self { per_second, next_token: now }
    }

    /// Takes a token if one is available. Returns whether it did.
    fn try_accept(&mut self, now: Moment) -> bool {
        if self.next_token_at(now).is_none_or(|time| time > now) {
            return false;
        }
        self.next_token = now + self.interval();
        true
    }

    /// Returns the time of the next token, at the earliest `now`; `None` at rate zero.
    fn next_token_at(&self, now: Moment) -> Option<Moment> {
        (self.per_second > 0.0).then(|| self.next_token.max(now))
    }

    /// Returns the time between two tokens.
    fn interval(&self) -> SignedDuration {
        SignedDuration::try_from_secs_f32(1.0 / self.per_second).unwrap_or(SignedDuration::MAX)
    }

    /// Changes the rate. If the next token is not yet available, it becomes available one interval of the new rate
    /// from now.
    fn set_rate(&mut self, per_second: f32, now: Moment) {
        #[expect(clippy::float_cmp, reason = "the same setting, unchanged")]
        if self.per_second == per_second {
            return;
        }
        let has_token = self.next_token_at(now).is_some_and(|time| time <= now);
        self.per_second = per_second;
        self.next_token =
            if has_token || per_second <= 0.0 { now } else { now.saturating_add(self.interval()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::label;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Moment {
        SignedDuration::from_secs(seconds)
    }

    fn options() -> Options {
        Options::default()
    }

    /// Returns zones with these keys, added at 0 s.
    fn zones(names: &[&str]) -> Zones {
        let mut zones = Zones::default();
        for name in names {
            assert!(zones.add(name, &options(), at(0)));
        }
        zones
    }

    /// Returns the numbers of ready and unready nodes of each zone.
    fn counts(all: &[(&str, usize, usize)]) -> BTreeMap<Text, NodeCounts> {
        let count = |(zone, ready, not_ready): &(&str, usize, usize)| {
            ((*zone).into(), NodeCounts { ready: *ready, not_ready: *not_ready })
        };
        all.iter().map(count).collect()
    }

    #[test]
    fn zone_state_depends_on_its_ready_nodes() {
        // Numbers of ready and unready nodes, and the state of their zone.
        let table = [
            (0, 0, ZoneState::Normal),
            (1, 0, ZoneState::Normal),
            (0, 1, ZoneState::FullDisruption),
            (0, 5, ZoneState::FullDisruption),
            (1, 2, ZoneState::Normal),
            (3, 3, ZoneState::Normal),
            (9, 11, ZoneState::PartialDisruption),
            (10, 11, ZoneState::Normal),
            (2, 3, ZoneState::PartialDisruption),
        ];
        for (ready, not_ready, want) in table {
            let count = NodeCounts { ready, not_ready };
            assert_eq!(count.zone_state(&options()), want, "{count:?}");
        }
        assert_eq!(NodeCounts::default().percent_ready(), 100.0);
        assert_eq!(NodeCounts { ready: 1, not_ready: 3 }.percent_ready(), 25.0);
    }

    #[test]
    fn eviction_rate_depends_on_zone_state_and_size() {
        let eviction_rate = |state, size| eviction_rate(state, size, &options());
        assert_eq!(eviction_rate(ZoneState::Normal, 1), 0.1);
        assert_eq!(eviction_rate(ZoneState::FullDisruption, 1), 0.1);
        assert_eq!(eviction_rate(ZoneState::PartialDisruption, 50), 0.0);
        assert_eq!(eviction_rate(ZoneState::PartialDisruption, 51), 0.01);
    }

    #[test]
    fn zone_key_joins_region_and_zone() {
        let labels = |all: &[(&str, &str)]| all.iter().copied().collect::<StrMap>();
        assert_eq!(&*zone_key(&label("a", "b")), "");
        assert_eq!(&*zone_key(&label("topology.kubernetes.io/zone", "z")), ":\0:z");
        let both = [("topology.kubernetes.io/zone", "z"), ("topology.kubernetes.io/region", "r")];
        assert_eq!(&*zone_key(&labels(&both)), "r:\0:z");
        let old = ("failure-domain.beta.kubernetes.io/zone", "old");
        assert_eq!(&*zone_key(&labels(&[both[0], both[1], old])), "r:\0:old");
    }

    #[test]
    fn one_node_per_zone_is_tainted_every_ten_seconds() {
        let mut zones = zones(&["a", "b"]);
        for node in ["1", "2", "3", "1"] {
            zones.enqueue("a", node);
        }
        zones.enqueue("b", "4");
        assert_eq!(zones.take_due(at(0)), ["1".into(), "4".into()]);
        assert_eq!(zones.next_due(at(0)), Some(at(10)));
        assert!(zones.take_due(at(9)).is_empty());
        zones.dequeue("2");
        assert_eq!(zones.take_due(at(10)), ["3".into()]);
        assert_eq!(zones.next_due(at(10)), None, "the queue is empty");
    }

    #[test]
    fn small_zone_in_partial_disruption_stops_and_resumes() {
        let mut zones = zones(&["a", "b"]);
        zones.enqueue("a", "1");
        zones.enqueue("a", "2");
        assert_eq!(
            zones.handle_disruption(&counts(&[("a", 2, 3), ("b", 1, 0)]), &options(), at(0)),
            DisruptionChange::None
        );
        assert_eq!(zones.state("a"), ZoneState::PartialDisruption);
        assert!(zones.take_due(at(1000)).is_empty());
        assert_eq!(zones.next_due(at(1000)), None);
        zones.handle_disruption(&counts(&[("a", 3, 2), ("b", 1, 0)]), &options(), at(1000));
        // Queued nodes wait one interval of the restored eviction rate.
        assert!(zones.take_due(at(1009)).is_empty());
        assert_eq!(zones.take_due(at(1010)), ["1".into()]);
    }

    #[test]
    fn full_disruption_of_all_zones_taints_no_node() {
        let mut zones = zones(&["a", "b"]);
        zones.handle_disruption(&counts(&[("a", 1, 0), ("b", 1, 0)]), &options(), at(0));
        zones.enqueue("a", "1");
        let none_ready = counts(&[("a", 0, 1), ("b", 0, 1)]);
        assert_eq!(
            zones.handle_disruption(&none_ready, &options(), at(1)),
            DisruptionChange::EnteredFullDisruption
        );
        assert_eq!(zones.handle_disruption(&none_ready, &options(), at(2)), DisruptionChange::None);
        assert!(zones.take_due(at(1000)).is_empty());
        let one_ready = counts(&[("a", 0, 1), ("b", 1, 0)]);
        assert_eq!(
            zones.handle_disruption(&one_ready, &options(), at(1001)),
            DisruptionChange::LeftFullDisruption
        );
        assert_eq!(zones.state("a"), ZoneState::FullDisruption);
        assert_eq!(zones.take_due(at(1011)), ["1".into()], "another zone has a ready node");
    }

    #[test]
    fn cluster_without_nodes_is_not_disrupted() {
        let mut zones = Zones::default();
        assert_eq!(
            zones.handle_disruption(&BTreeMap::new(), &options(), at(0)),
            DisruptionChange::None
        );
        zones.add("", &options(), at(1));
        assert_eq!(
            zones.handle_disruption(&counts(&[("", 1, 0)]), &options(), at(1)),
            DisruptionChange::None
        );
        assert_eq!(zones.remove_empty(|_| false), ["".into()]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// In any sequence of zone states, the number of tainted nodes is at most one plus the highest eviction rate
        /// times the elapsed time.
        #[test]
        fn taints_stay_within_the_eviction_rate(steps in proptest::collection::vec((0i64..30, 0usize..4, 0usize..6), 1..60)) {
            let mut zones = zones(&["a", "z"]);
            let (mut time, mut tainted, mut number) = (0, 0i64, 0);
            for (elapsed, ready, not_ready) in steps {
                time += elapsed;
                zones.handle_disruption(&counts(&[("a", ready, not_ready), ("z", 1, 0)]), &options(), at(time));
                for _ in 0..3 {
                    number += 1;
                    zones.enqueue("a", &number.to_string());
                }
                tainted += i64::try_from(zones.take_due(at(time)).len()).unwrap();
                prop_assert!(tainted <= 1 + time / 10, "{} after {} s", tainted, time);
            }
        }
    }
}
