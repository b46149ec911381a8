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
const ATTEMPT_SAMPLING_INTERVAL: u64 = 10;
/// A sampled attempt records the filters' durations on one node in this many.
const NODE_SAMPLING_INTERVAL: Slot = 64;

/// Measurements of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    is_sampled: bool,
    stopwatch: Stopwatch,
    pub(crate) points: SmallVec<[PointDuration; 6]>,
    /// Plugin calls of a sampled attempt.
    pub(crate) plugin_calls: Vec<CallDuration>,
    /// Number of filter calls, indexed by plugin.
    pub(crate) filter_counts: SmallVec<[u32; 32]>,
    /// Number of the other calls that upstream counts.
    pub(crate) call_counts: SmallVec<[CallCount; 32]>,
}

/// Total duration of the plugins of an extension point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointDuration {
    pub(crate) point: ExtensionPoint,
    /// Value of the label `status`.
    pub(crate) status: &'static str,
    pub(crate) took: Duration,
}

/// Duration of a plugin call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallDuration {
    pub(crate) point: ExtensionPoint,
    /// Index of the plugin in the profile.
    pub(crate) plugin: usize,
    /// Value of the label `status`.
    pub(crate) status: &'static str,
    pub(crate) took: Duration,
}

/// Number of calls of a plugin at an extension point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallCount {
    pub(crate) point: ExtensionPoint,
    /// Index of the plugin in the profile.
    pub(crate) plugin: usize,
    pub(crate) calls: u32,
}

impl Trace {
    /// Returns an empty trace for a profile with this number of plugins. The seed decides whether the attempt is
    /// sampled.
    pub(super) fn new(seed: u64, n_plugins: usize) -> Self {
        Self {
            is_sampled: mix(!seed).is_multiple_of(ATTEMPT_SAMPLING_INTERVAL),
            filter_counts: SmallVec::from_elem(0, n_plugins),
            ..Self::default()
        }
    }

    /// Measures durations with this stopwatch from now on.
    pub(super) fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.stopwatch = stopwatch;
    }

    /// Returns the stopwatch's reading, to be kept for [`Self::record_point`].
    pub(crate) fn now(&self) -> Duration {
        self.stopwatch.read()
    }

    /// Returns the stopwatch's reading, or `None` if the attempt is not sampled.
    pub(crate) fn now_if_sampled(&self) -> Option<Duration> {
        self.is_sampled.then(|| self.now())
    }

    /// Returns whether the attempt is sampled, so that each plugin call is measured.
    pub(crate) fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Returns whether the filter calls for this node are measured.
    pub(super) fn is_node_timed(&self, slot: Slot) -> bool {
        self.is_sampled && slot.is_multiple_of(NODE_SAMPLING_INTERVAL)
    }

    /// Records the duration of a plugin call, if it was measured, without counting the call. `status` is the status
    /// with which the plugin rejected the pod.
    pub(crate) fn record_duration(
        &mut self,
        point: ExtensionPoint,
        plugin: usize,
        began: Option<Duration>,
        status: Option<&Status>,
    ) {
        self.push_duration(point, plugin, began, status_label(status));
    }

    /// Counts a plugin call, and records its duration if it was measured.
    pub(super) fn record_call(
        &mut self,
        point: ExtensionPoint,
        plugin: usize,
        began: Option<Duration>,
        status: Option<&Status>,
    ) {
        match (point, self.filter_counts.get_mut(plugin)) {
            (ExtensionPoint::Filter, Some(count)) => *count += 1,
            _ => self.call_counts.push(CallCount { point, plugin, calls: 1 }),
        }
        self.record_duration(point, plugin, began, status);
    }

    /// Records the duration of a call in which the plugin skipped the pod. Like upstream, it does not count the call.
    pub(super) fn record_skip(
        &mut self,
        point: ExtensionPoint,
        plugin: usize,
        began: Option<Duration>,
    ) {
        self.push_duration(point, plugin, began, "Skip");
    }

    /// Counts and records a plugin's scores of this many nodes.
    pub(super) fn record_scores(&mut self, plugin: usize, n_nodes: usize, began: Option<Duration>) {
        let point = ExtensionPoint::Score;
        let calls = u32::try_from(n_nodes).unwrap_or(u32::MAX);
        self.call_counts.push(CallCount { point, plugin, calls });
        self.record_duration(point, plugin, began, None);
    }

    /// Records the duration of an extension point.
    pub(crate) fn record_point(
        &mut self,
        point: ExtensionPoint,
        began: Duration,
        status: Option<&Status>,
    ) {
        let took = self.stopwatch.since(began);
        self.points.push(PointDuration { point, status: status_label(status), took });
    }

    /// Records the duration of a plugin call that began at `began`, if calls are measured.
    fn push_duration(
        &mut self,
        point: ExtensionPoint,
        plugin: usize,
        began: Option<Duration>,
        status: &'static str,
    ) {
        if let Some(began) = began {
            let took = self.stopwatch.since(began);
            self.plugin_calls.push(CallDuration { point, plugin, status, took });
        }
    }
}

/// Returns the value of the label `status` in upstream's metrics.
fn status_label(status: Option<&Status>) -> &'static str {
    status.map_or("Success", |status| status.code.as_str())
}
