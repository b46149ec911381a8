//! How many nodes of a zone may lose their pods, and when.
//!
//! Where a few nodes of a zone are not ready, those are ill; where most are not, it is rather the network between them and
//! the controller. So each zone has a state, which says how fast its nodes are tainted; and where no zone has a node that is
//! ready, none is. Time comes in as an argument.

use super::{super::Options, health::Moment};
use evenkeel_api::{StrMap, Text, time::SignedDuration, views::Node};
use std::collections::{BTreeMap, VecDeque};

/// A node with this label does not count when the state of its zone is made up.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// How a zone is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not looked at yet.
    Initial,
    /// Most of its nodes are ready.
    Normal,
    /// More than two are not, and those are too many of all: `--unhealthy-zone-threshold`.
    PartialDisruption,
    /// None is ready.
    FullDisruption,
}

/// What a change of all zones' states means for all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing.
    None,
    /// No node is ready any more anywhere, which upstream calls master disruption mode: taints are taken off, and none is
    /// put on.
    AllGone,
    /// Some are ready again: for all nodes the time of their last sign of life is now.
    SomeBack,
}

/// Nodes of a zone that count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) ready: usize,
    pub(crate) not_ready: usize,
}

impl Count {
    /// How many there are.
    pub(crate) fn all(self) -> usize {
        self.ready + self.not_ready
    }

    /// How many in a hundred are ready; 100 of none.
    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes")]
    pub(crate) fn health(self) -> f64 {
        if self.all() == 0 { 100.0 } else { 100.0 * self.ready as f64 / self.all() as f64 }
    }

    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes")]
    fn state(self, options: &Options) -> State {
        let Self { ready, not_ready } = self;
        // Upstream compares what 32 bits hold, which at a threshold such as 0.55 makes a difference.
        let ratio = not_ready as f32 / self.all() as f32;
        match () {
            () if ready == 0 && not_ready > 0 => State::FullDisruption,
            () if not_ready > 2 && ratio >= options.unhealthy_zone_threshold => {
                State::PartialDisruption
            }
            () => State::Normal,
        }
    }
}

/// The name of a node's zone, empty where it has none.
pub(crate) fn zone_of(labels: &StrMap) -> Text {
    let label = |beta, stable| labels.get(beta).or_else(|| labels.get(stable)).unwrap_or_default();
    let zone = label("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
    let region = label("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");
    if zone.is_empty() && region.is_empty() {
        return Text::new();
    }
    // No label has a null character in it, so that no two zones have one name.
    format!("{region}:\0:{zone}").into()
}

/// Whether the node counts.
pub(crate) fn counts(node: &Node) -> bool {
    node.meta.labels.get(EXCLUDED).is_none()
}

/// All zones.
#[derive(Debug, Default)]
pub(crate) struct Zones(BTreeMap<Text, Zone>);

#[derive(Debug)]
struct Zone {
    state: State,
    /// Nodes that are to be tainted, the first to come first.
    queue: VecDeque<Text>,
    limit: Limit,
}

impl Zones {
    /// Takes note that there is a zone; whether it is a new one.
    pub(crate) fn add(&mut self, zone: &str, options: &Options, now: Moment) -> bool {
        if self.0.contains_key(zone) {
            return false;
        }
        let limit = Limit::new(options.eviction_rate, now);
        let new = Zone { state: State::Initial, queue: VecDeque::new(), limit };
        self.0.insert(zone.into(), new);
        true
    }

    /// Forgets zones without a node; their names.
    pub(crate) fn retain(&mut self, has_nodes: impl Fn(&str) -> bool) -> Vec<Text> {
        let gone: Vec<Text> = self.0.keys().filter(|zone| !has_nodes(zone)).cloned().collect();
        self.0.retain(|zone, _| has_nodes(zone));
        gone
    }

    /// How a zone is.
    pub(crate) fn state(&self, zone: &str) -> State {
        self.0.get(zone).map_or(State::Initial, |zone| zone.state)
    }

    /// The node is to be tainted when its turn comes. One that waits keeps its place.
    pub(crate) fn wait(&mut self, zone: &str, node: &str) {
        if let Some(zone) = self.0.get_mut(zone)
            && !zone.queue.iter().any(|waiting| &**waiting == node)
        {
            zone.queue.push_back(node.into());
        }
    }

    /// The node is not to be tainted.
    pub(crate) fn spare(&mut self, node: &str) {
        for zone in self.0.values_mut() {
            zone.queue.retain(|waiting| &**waiting != node);
        }
    }

    /// The nodes whose turn it is.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<Text> {
        let mut due = Vec::new();
        for zone in self.0.values_mut() {
            while !zone.queue.is_empty() && zone.limit.take(now) {
                due.extend(zone.queue.pop_front());
            }
        }
        due
    }

    /// When the next node's turn comes, if any waits for one.
    pub(crate) fn next(&self, now: Moment) -> Option<Moment> {
        let waiting = self.0.values().filter(|zone| !zone.queue.is_empty());
        waiting.filter_map(|zone| zone.limit.ready_at(now)).min()
    }

    /// Takes over what the zones' nodes are now (upstream: `handleDisruption`). A zone of which no node counts is as good as
    /// normal.
    pub(crate) fn turn(
        &mut self,
        counts: &BTreeMap<Text, Count>,
        options: &Options,
        now: Moment,
    ) -> Turn {
        let states: BTreeMap<&str, State> = counts
            .iter()
            .filter(|(_, count)| count.all() > 0)
            .map(|(zone, count)| (&**zone, count.state(options)))
            .collect();
        let is_gone = |state: State| state == State::FullDisruption;
        let all_gone = !states.is_empty() && states.values().all(|state| is_gone(*state));
        let mut before = self.0.iter().filter(|(zone, _)| states.contains_key(&***zone));
        let all_were_gone = !states.is_empty() && before.all(|(_, zone)| is_gone(zone.state));
        if all_gone {
            for zone in self.0.values_mut() {
                zone.state = State::FullDisruption;
                zone.limit.set(0.0, now);
            }
            return if all_were_gone { Turn::None } else { Turn::AllGone };
        }
        for (name, zone) in &mut self.0 {
            let state = states.get(&**name).copied().unwrap_or(State::Normal);
            let size = counts.get(name).copied().unwrap_or_default().all();
            zone.state = state;
            zone.limit.set(rate(state, size, options), now);
        }
        if all_were_gone { Turn::SomeBack } else { Turn::None }
    }
}

/// How many nodes of a zone of this size and state are tainted a second.
fn rate(state: State, size: usize, options: &Options) -> f32 {
    match state {
        State::PartialDisruption if size > options.large_cluster_size => {
            options.secondary_eviction_rate
        }
        State::PartialDisruption => 0.0,
        // Where another zone is well, a zone without any node that is ready is really gone.
        State::Initial | State::Normal | State::FullDisruption => options.eviction_rate,
    }
}

/// A rate: one at once, and then as many a second as it says.
#[derive(Debug)]
struct Limit {
    per_second: f32,
    /// When one may be taken next; long ago at the beginning.
    ready: Moment,
}

impl Limit {
    fn new(per_second: f32, now: Moment) -> Self {
        Self { per_second, ready: now }
    }

    fn take(&mut self, now: Moment) -> bool {
        if self.ready_at(now).is_none_or(|ready| ready > now) {
            return false;
        }
        self.ready = now + self.pause();
        true
    }

    fn ready_at(&self, now: Moment) -> Option<Moment> {
        (self.per_second > 0.0).then(|| self.ready.max(now))
    }

    fn pause(&self) -> SignedDuration {
        SignedDuration::try_from_secs_f32(1.0 / self.per_second).unwrap_or(SignedDuration::MAX)
    }

    /// Changes the rate. Whoever waits under the old one waits under the new one, too.
    fn set(&mut self, per_second: f32, now: Moment) {
        #[expect(clippy::float_cmp, reason = "the same setting, unchanged")]
        if self.per_second == per_second {
            return;
        }
        let waits = self.ready_at(now).is_none_or(|ready| ready > now);
        self.per_second = per_second;
        self.ready = if waits && per_second > 0.0 { now.saturating_add(self.pause()) } else { now };
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

    fn zones(names: &[&str]) -> Zones {
        let mut zones = Zones::default();
        for name in names {
            assert!(zones.add(name, &options(), at(0)));
        }
        zones
    }

    fn counts(all: &[(&str, usize, usize)]) -> BTreeMap<Text, Count> {
        let count = |(zone, ready, not_ready): &(&str, usize, usize)| {
            ((*zone).into(), Count { ready: *ready, not_ready: *not_ready })
        };
        all.iter().map(count).collect()
    }

    #[test]
    fn states_by_how_many_are_ready() {
        let table = [
            (0, 0, State::Normal),
            (1, 0, State::Normal),
            (0, 1, State::FullDisruption),
            (0, 5, State::FullDisruption),
            (1, 2, State::Normal),
            (3, 3, State::Normal),
            (9, 11, State::PartialDisruption),
            (10, 11, State::Normal),
            (2, 3, State::PartialDisruption),
        ];
        for (ready, not_ready, want) in table {
            let count = Count { ready, not_ready };
            assert_eq!(count.state(&options()), want, "{count:?}");
        }
        assert_eq!(Count::default().health(), 100.0);
        assert_eq!(Count { ready: 1, not_ready: 3 }.health(), 25.0);
    }

    #[test]
    fn rates_by_state_and_size() {
        let rate = |state, size| rate(state, size, &options());
        assert_eq!(rate(State::Normal, 1), 0.1);
        assert_eq!(rate(State::FullDisruption, 1), 0.1);
        assert_eq!(rate(State::PartialDisruption, 50), 0.0);
        assert_eq!(rate(State::PartialDisruption, 51), 0.01);
    }

    #[test]
    fn names_of_zones() {
        let labels = |all: &[(&str, &str)]| all.iter().copied().collect::<StrMap>();
        assert_eq!(&*zone_of(&label("a", "b")), "");
        assert_eq!(&*zone_of(&label("topology.kubernetes.io/zone", "z")), ":\0:z");
        let both = [("topology.kubernetes.io/zone", "z"), ("topology.kubernetes.io/region", "r")];
        assert_eq!(&*zone_of(&labels(&both)), "r:\0:z");
        let old = ("failure-domain.beta.kubernetes.io/zone", "old");
        assert_eq!(&*zone_of(&labels(&[both[0], both[1], old])), "r:\0:old");
    }

    #[test]
    fn one_at_once_and_then_one_in_ten_seconds() {
        let mut zones = zones(&["a", "b"]);
        for node in ["1", "2", "3", "1"] {
            zones.wait("a", node);
        }
        zones.wait("b", "4");
        assert_eq!(zones.due(at(0)), ["1".into(), "4".into()]);
        assert_eq!(zones.next(at(0)), Some(at(10)));
        assert!(zones.due(at(9)).is_empty());
        zones.spare("2");
        assert_eq!(zones.due(at(10)), ["3".into()]);
        assert_eq!(zones.next(at(10)), None, "nobody waits");
    }

    #[test]
    fn a_zone_in_part_stops_and_goes_on() {
        let mut zones = zones(&["a", "b"]);
        zones.wait("a", "1");
        zones.wait("a", "2");
        assert_eq!(zones.turn(&counts(&[("a", 2, 3), ("b", 1, 0)]), &options(), at(0)), Turn::None);
        assert_eq!(zones.state("a"), State::PartialDisruption);
        assert!(zones.due(at(1000)).is_empty());
        assert_eq!(zones.next(at(1000)), None);
        zones.turn(&counts(&[("a", 3, 2), ("b", 1, 0)]), &options(), at(1000));
        // Who was kept waiting waits for the new rate's first turn.
        assert!(zones.due(at(1009)).is_empty());
        assert_eq!(zones.due(at(1010)), ["1".into()]);
    }

    #[test]
    fn when_all_are_gone_nobody_is_tainted() {
        let mut zones = zones(&["a", "b"]);
        zones.turn(&counts(&[("a", 1, 0), ("b", 1, 0)]), &options(), at(0));
        zones.wait("a", "1");
        let gone = counts(&[("a", 0, 1), ("b", 0, 1)]);
        assert_eq!(zones.turn(&gone, &options(), at(1)), Turn::AllGone);
        assert_eq!(zones.turn(&gone, &options(), at(2)), Turn::None);
        assert!(zones.due(at(1000)).is_empty());
        let back = counts(&[("a", 0, 1), ("b", 1, 0)]);
        assert_eq!(zones.turn(&back, &options(), at(1001)), Turn::SomeBack);
        assert_eq!(zones.state("a"), State::FullDisruption);
        assert_eq!(zones.due(at(1011)), ["1".into()], "another zone is well");
    }

    #[test]
    fn a_cluster_without_nodes_is_not_disrupted() {
        let mut zones = Zones::default();
        assert_eq!(zones.turn(&BTreeMap::new(), &options(), at(0)), Turn::None);
        zones.add("", &options(), at(1));
        assert_eq!(zones.turn(&counts(&[("", 1, 0)]), &options(), at(1)), Turn::None);
        assert_eq!(zones.retain(|_| false), ["".into()]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Whatever happens to a zone, its nodes are not tainted faster than one and then the highest rate.
        #[test]
        fn never_faster_than_the_rate(steps in proptest::collection::vec((0i64..30, 0usize..4, 0usize..6), 1..60)) {
            let mut zones = zones(&["a", "z"]);
            let (mut time, mut tainted, mut number) = (0, 0i64, 0);
            for (pause, ready, not_ready) in steps {
                time += pause;
                zones.turn(&counts(&[("a", ready, not_ready), ("z", 1, 0)]), &options(), at(time));
                for _ in 0..3 {
                    number += 1;
                    zones.wait("a", &number.to_string());
                }
                tainted += i64::try_from(zones.due(at(time)).len()).unwrap();
                prop_assert!(tainted <= 1 + time / 10, "{} after {} s", tainted, time);
            }
        }
    }
}
