//! Plugin calls of the queue, measured for metrics with a [`Stopwatch`]. No decision depends on the durations.

use std::time::Duration;

use super::EventLabel;
use crate::{
    framework::{QueueingHint, Status},
    pod::PodInfo,
    stopwatch::Stopwatch,
};

/// A call of a queueing hint, with its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HintKey {
    pub(crate) profile: usize,
    pub(crate) plugin: usize,
    pub(crate) event: EventLabel,
    pub(crate) hint: QueueingHint,
}

/// A measured call. Profiles and plugins are indexes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PluginCall {
    /// A plugin's queueing hint.
    Hint { key: HintKey, took: Duration },
    /// One PreEnqueue plugin of a sampled run, with its status code.
    PreEnqueue { profile: usize, plugin: usize, status: &'static str, took: Duration },
    /// The run of all PreEnqueue plugins of a profile.
    AllPreEnqueue { profile: usize, took: Duration },
}

/// A panic of a plugin that the queue called.
#[derive(Debug, Clone)]
pub(crate) struct PluginPanic {
    pub(crate) profile: usize,
    pub(crate) pod: PodInfo,
    /// Message that names the extension point and the plugin.
    pub(crate) message: String,
}

/// Recorded calls and panics. Without a stopwatch, only panics are recorded.
#[derive(Debug, Default)]
pub(super) struct PluginCalls {
    stopwatch: Option<Stopwatch>,
    calls: Vec<PluginCall>,
    panics: Vec<PluginPanic>,
}

impl PluginCalls {
    /// Sets the stopwatch that measures the calls.
    pub(super) fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.stopwatch = Some(stopwatch);
    }

    /// Takes the calls recorded since the last call.
    pub(super) fn take_calls(&mut self) -> Vec<PluginCall> {
        std::mem::take(&mut self.calls)
    }

    /// Takes the panics recorded since the last call.
    pub(super) fn take_panics(&mut self) -> Vec<PluginPanic> {
        std::mem::take(&mut self.panics)
    }

    /// Records a panic of a plugin. `call` describes the call, for example `running PreEnqueue plugin`.
    pub(super) fn record_panic(
        &mut self,
        profile: usize,
        pod: &PodInfo,
        call: &str,
        plugin: &str,
        status: &Status,
    ) {
        let message = format!("{call} \"{plugin}\": {}", status.reasons.join(", "));
        self.panics.push(PluginPanic { profile, pod: pod.clone(), message });
    }

    /// Returns the stopwatch's reading, or `None` without a stopwatch.
    pub(super) fn now(&self) -> Option<Duration> {
        self.stopwatch.map(Stopwatch::read)
    }

    /// Records a call of a queueing hint that began at this reading.
    pub(super) fn record_hint(&mut self, key: HintKey, began: Option<Duration>) {
        self.record(began, |took| PluginCall::Hint { key, took });
    }

    /// Records a call of a PreEnqueue plugin. `status` is the status with which it gated the pod.
    pub(super) fn record_pre_enqueue(
        &mut self,
        profile: usize,
        plugin: usize,
        status: Option<&Status>,
        began: Option<Duration>,
    ) {
        let status_label = status.map_or("Success", |status| status.code.as_str());
        self.record(began, |took| PluginCall::PreEnqueue {
            profile,
            plugin,
            status: status_label,
            took,
        });
    }

    /// Records the run of all PreEnqueue plugins.
    pub(super) fn record_all_pre_enqueue(&mut self, profile: usize, began: Option<Duration>) {
        self.record(began, |took| PluginCall::AllPreEnqueue { profile, took });
    }

    /// Records a call that began at this reading, if calls are measured.
    fn record(&mut self, began: Option<Duration>, call: impl FnOnce(Duration) -> PluginCall) {
        if let Some((stopwatch, began)) = self.stopwatch.zip(began) {
            self.calls.push(call(stopwatch.since(began)));
        }
    }
}
