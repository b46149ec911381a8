//! Faults of nodes that a Behavior draws: alternating times without and with the fault, each exponentially distributed.
//!
//! The draws depend on the seed, the node's name, the kind of the fault and the time since the Behavior was created.
//! Time is divided into windows, each with draws of its own, so that a decision is as cheap after a year as after a
//! minute. The initial state of a window is drawn with the ratio of the two means. Because the distribution is
//! memoryless, this continues the process.

use evenkeel_api::time::{Timestamp, saturating_add};
use std::time::Duration;

use super::draw;

/// Length of a window in mean cycles. A cycle is a time without the fault and a time with it.
const CYCLES: u64 = 32;

/// Maximum number of windows that a decision looks ahead for the next change.
const MAX_WINDOWS: u64 = 16;

/// A fault that nodes have from time to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeFault {
    /// Full name of the annotation of nodes that sets the same fault.
    pub(crate) annotation: &'static str,
    /// Mean time from the end of a fault to the next one, in milliseconds. At least 1.
    pub(crate) between_failures: u64,
    /// Mean time of a fault, in milliseconds. At least 1.
    pub(crate) to_repair: u64,
}

/// State of a fault at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outage {
    /// Whether the node has the fault.
    pub(crate) is_on: bool,
    /// Time of the next change, after the time of the decision.
    pub(crate) until: Timestamp,
}

impl NodeFault {
    /// Returns the state of the fault for a node. `since` is the creation time of the Behavior with this seed; the node
    /// has no fault at that time.
    pub(crate) fn outage(&self, seed: u64, node: &str, since: Timestamp, now: Timestamp) -> Outage {
        let age = u64::try_from(now.duration_since(since).as_millis()).unwrap_or_default();
        let length = self.window_length();
        let mut window = age / length;
        let (is_on, mut end) = self.segment(seed, node, window, age);
        // The next window may begin in the state in which this one ends.
        for _ in 0..MAX_WINDOWS {
            let begin = (window + 1).saturating_mul(length);
            if end < begin {
                break;
            }
            window += 1;
            let (is_on_then, end_then) = self.segment(seed, node, window, begin);
            if is_on_then != is_on {
                break;
            }
            end = end_then;
        }
        Outage { is_on, until: saturating_add(since, Duration::from_millis(end)) }
    }

    fn window_length(&self) -> u64 {
        self.between_failures.saturating_add(self.to_repair).saturating_mul(CYCLES)
    }

    /// Returns the state at a time since the creation, in milliseconds, and the end of that state or of the window.
    fn segment(&self, seed: u64, node: &str, window: u64, at: u64) -> (bool, u64) {
        let hash = draw::hash(seed, &[node, self.annotation, &window.to_string()]);
        let begin = window.saturating_mul(self.window_length());
        let limit = begin.saturating_add(self.window_length());
        let share =
            self.to_repair as f64 / self.between_failures.saturating_add(self.to_repair) as f64;
        let mut is_on = window > 0 && uniform(draw::draw(hash, 0)) <= share;
        let mut end = begin;
        for n in 1.. {
            let mean = if is_on { self.to_repair } else { self.between_failures };
            end = end.saturating_add(exponential(mean, draw::draw(hash, n)));
            if at < end || limit <= end {
                break;
            }
            is_on = !is_on;
        }
        (is_on, end.min(limit))
    }
}

/// Returns a number above 0 and up to 1.
fn uniform(draw: u64) -> f64 {
    // A mantissa has 53 bits.
    ((draw >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Returns an exponentially distributed number of milliseconds, at least 1.
fn exponential(mean: u64, draw: u64) -> u64 {
    // Whole milliseconds are the same on each machine, even if the last bit of its logarithm differs.
    ((mean as f64 * -uniform(draw).ln()).ceil() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + i64::try_from(millis).unwrap()).unwrap()
    }

    fn fault(between_failures: u64, to_repair: u64) -> NodeFault {
        NodeFault { annotation: "sim.evenkeel.dev/silent", between_failures, to_repair }
    }

    /// Returns the changes of a node's state within a time, in milliseconds since the creation, each with its new state.
    fn changes(fault: &NodeFault, seed: u64, node: &str, until: u64) -> Vec<(u64, bool)> {
        let (mut now, mut found) = (0, Vec::new());
        while now < until {
            let outage = fault.outage(seed, node, at(0), at(now));
            found.push((now, outage.is_on));
            let next = outage.until.duration_since(at(0)).as_millis();
            let next = u64::try_from(next).unwrap();
            assert!(next > now, "{next} is after {now}");
            now = next;
        }
        found
    }

    /// Returns the share of time that nodes have the fault, and the mean lengths of the segments without and with the
    /// fault.
    fn measure(fault: &NodeFault, nodes: u32, until: u64) -> (f64, [f64; 2]) {
        let (mut sums, mut counts) = ([0u64; 2], [0u64; 2]);
        for node in 0..nodes {
            let mut changes = changes(fault, 5, &format!("node-{node}"), until);
            changes.push((until, false));
            for pair in changes.windows(2) {
                let index = usize::from(pair[0].1);
                sums[index] += pair[1].0.min(until) - pair[0].0;
                counts[index] += 1;
            }
        }
        let mean = |index: usize| sums[index] as f64 / counts[index] as f64;
        (sums[1] as f64 / (sums[0] + sums[1]) as f64, [mean(0), mean(1)])
    }

    #[test]
    fn the_share_of_time_with_the_fault_is_that_of_its_means() {
        for (between_failures, to_repair) in
            [(10 * HOUR, HOUR), (HOUR, HOUR), (HOUR, 5 * HOUR), (100 * HOUR, HOUR / 6)]
        {
            let fault = fault(between_failures, to_repair);
            // Some thousands of cycles, over many windows.
            let until = 200 * (between_failures + to_repair);
            let (share, [without, with]) = measure(&fault, 50, until);
            let want = to_repair as f64 / (between_failures + to_repair) as f64;
            let is_near = |found: f64, want: f64| (found / want - 1.0).abs() < 0.05;
            assert!(is_near(share, want), "{share}, not {want}: {fault:?}");
            assert!(is_near(without, between_failures as f64), "{without}: {fault:?}");
            assert!(is_near(with, to_repair as f64), "{with}: {fault:?}");
        }
    }

    #[test]
    fn times_are_exponentially_distributed() {
        let fault = fault(HOUR, HOUR);
        let mut lengths = Vec::new();
        for node in 0..20 {
            let found = changes(&fault, 1, &format!("n{node}"), 400 * HOUR);
            lengths.extend(found.windows(2).map(|pair| pair[1].0 - pair[0].0));
        }
        let share = |least: u64| {
            lengths.iter().filter(|length| **length > least).count() as f64 / lengths.len() as f64
        };
        for (least, want) in [(HOUR / 2, 0.607), (HOUR, 0.368), (2 * HOUR, 0.135)] {
            assert!(
                (share(least) - want).abs() < 0.03,
                "{} > {least}: {}",
                lengths.len(),
                share(least)
            );
        }
    }

    #[test]
    fn draws_depend_on_seed_node_and_kind_and_not_on_the_time_of_a_decision() {
        let silent = fault(HOUR, HOUR / 10);
        let not_ready = NodeFault { annotation: "sim.evenkeel.dev/not-ready", ..silent };
        let until = 1000 * HOUR;
        let changes_of =
            |fault: &NodeFault, seed: u64, node: &str| changes(fault, seed, node, until);
        let known = changes_of(&silent, 1, "a");
        assert_eq!(known, changes_of(&silent, 1, "a"));
        assert_ne!(known, changes_of(&silent, 2, "a"));
        assert_ne!(known, changes_of(&silent, 1, "b"));
        assert_ne!(known, changes_of(&not_ready, 1, "a"));
        // Decisions at any time and in any order return the segment that contains the time.
        for millis in (0..until).rev().step_by(7_777_777) {
            let outage = silent.outage(1, "a", at(0), at(millis));
            let next = known.partition_point(|(begin, _)| *begin <= millis);
            assert_eq!(outage.is_on, known[next - 1].1, "{millis}");
            if let Some((end, _)) = known.get(next) {
                assert_eq!(outage.until, at(*end), "{millis}");
            }
        }
        // The draws are part of the interface: a seed gives the same draws in each version.
        assert_eq!(known[..3], [(0, false), (329_291, true), (784_588, false)]);
    }

    #[test]
    fn a_node_is_well_at_first_and_means_may_be_extreme() {
        for node in 0..200 {
            let outage = fault(HOUR, HOUR).outage(3, &format!("{node}"), at(HOUR), at(0));
            assert!(!outage.is_on && outage.until > at(HOUR), "before the creation, too");
        }
        let never = fault(u64::MAX, 1).outage(1, "a", at(0), at(HOUR));
        assert!(!never.is_on && never.until > at(HOUR));
        let ever = fault(1000, u64::MAX).outage(1, "a", at(0), at(HOUR));
        assert!(ever.is_on && ever.until > at(HOUR));
    }
}
