//! Measurements of an attempt for metrics: durations and numbers of plugin calls. The durations come from a
//! [`Stopwatch`], the only impure part of this module. No decision depends on them.

use smallvec::SmallVec;
use std::time::Duration;

use super::prioritize::mix;
use crate::{
    framework::{ExtensionPoint, Status},
    nodes::Slot,
    stopwatch::Stopwatch,
};

/// One attempt in this many records the duration of each plugin call.
const SAMPLED: u64 = 10;
/// A sampled attempt records the filters' durations on one node in this many.
const TIMED_NODES: Slot = 64;

/// Measurements of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    sampled: bool,
    stopwatch: Stopwatch,
    /// Extension point, status, and total duration of its plugins.
    pub(crate) points: SmallVec<[(ExtensionPoint, &'static str, Duration); 6]>,
    /// Extension point, plugin, status and duration of sampled plugin calls.
    pub(crate) plugins: Vec<(ExtensionPoint, usize, &'static str, Duration)>,
    /// Number of filter calls, indexed by plugin.
    pub(crate) filtered: SmallVec<[u32; 32]>,
    /// Extension point and plugin of the other calls, with their number.
    pub(crate) called: SmallVec<[(ExtensionPoint, usize, u32); 32]>,
}

impl Trace {
    pub(super) fn new(seed: u64, plugins: usize) -> Self {
        Self {
            sampled: mix(!seed).is_multiple_of(SAMPLED),
            filtered: SmallVec::from_elem(0, plugins),
            ..Self::default()
        }
    }

    /// Starts to measure durations.
    pub(super) fn measure(&mut self, stopwatch: Stopwatch) {
        self.stopwatch = stopwatch;
    }

    /// Returns the stopwatch's reading, to be kept for [`Self::ran`].
    pub(crate) fn now(&self) -> Duration {
        self.stopwatch.read()
    }

    /// Reports whether the attempt is sampled, so that each plugin call is measured.
    pub(crate) fn times_plugins(&self) -> bool {
        self.sampled
    }

    /// Returns the stopwatch's reading, or `None` if the attempt is not sampled.
    pub(crate) fn begin(&self) -> Option<Duration> {
        self.sampled.then(|| self.now())
    }

    /// Records the duration of a plugin call without counting the call.
    pub(crate) fn took(
        &mut self,
        point: ExtensionPoint,
        plugin: usize,
        began: Option<Duration>,
        why: Option<&Status>,
    ) {
        if let Some(began) = began {
            self.plugins.push((point, plugin, code(why), self.stopwatch.since(began)));
        }
    }

    /// Reports whether the filters are measured on this node.
    pub(super) fn times_node(&self, slot: Slot) -> bool {
        self.sampled && slot.is_multiple_of(TIMED_NODES)
    }

    /// Counts a plugin call, and records its duration if it was measured.
    pub(super) fn called(
        &mut self,
        point: ExtensionPoint,
        plugin: usize,
        began: Option<Duration>,
        why: Option<&Status>,
    ) {
        match (point, self.filtered.get_mut(plugin)) {
            (ExtensionPoint::Filter, Some(count)) => *count += 1,
            _ => self.called.push((point, plugin, 1)),
        }
        if let Some(began) = began {
            self.plugins.push((point, plugin, code(why), self.stopwatch.since(began)));
        }
    }

    /// Records the duration of a skipped plugin. As upstream, it does not count the call.
    pub(super) fn skipped(
        &mut self,
        point: ExtensionPoint,
        plugin: usize,
        began: Option<Duration>,
    ) {
        if let Some(began) = began {
            self.plugins.push((point, plugin, "Skip", self.stopwatch.since(began)));
        }
    }

    /// Counts and records a plugin's scores of this many nodes.
    pub(super) fn scored(&mut self, plugin: usize, nodes: usize, began: Option<Duration>) {
        self.called.push((ExtensionPoint::Score, plugin, u32::try_from(nodes).unwrap_or(u32::MAX)));
        if let Some(began) = began {
            self.plugins.push((
                ExtensionPoint::Score,
                plugin,
                code(None),
                self.stopwatch.since(began),
            ));
        }
    }

    /// Records the duration of an extension point.
    pub(crate) fn ran(&mut self, point: ExtensionPoint, began: Duration, why: Option<&Status>) {
        self.points.push((point, code(why), self.stopwatch.since(began)));
    }
}

/// Returns the value of the label `status` in upstream's metrics.
fn code(why: Option<&Status>) -> &'static str {
    why.map_or("Success", |why| why.code.as_str())
}
