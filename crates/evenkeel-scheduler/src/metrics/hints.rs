//! Metrics of queueing hints.

use evenkeel_runtime::metrics::{exponential, histograms};
use hashbrown::HashMap;
use prometheus::{Histogram, HistogramVec, Registry};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{framework::QueueingHint, queue::HintKey};

/// Durations of queueing hints. One event may call a hint for every unschedulable pod, so series are looked up by
/// numeric key instead of label values.
#[derive(Debug, Clone)]
pub(crate) struct HintMetrics {
    seconds: HistogramVec,
    series: Arc<Mutex<HashMap<HintKey, Histogram>>>,
}

impl HintMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let seconds = histograms(
            registry,
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration for running a queueing hint function of a plugin.",
            &exponential(0.000_01, 1.5, 20),
            &["plugin", "event", "hint"],
        );
        Self { seconds, series: Arc::default() }
    }

    /// Records the duration of a hint of the plugin `name`.
    pub(crate) fn observe(&self, key: HintKey, name: &str, took: Duration) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let series = series.entry(key).or_insert_with(|| {
            let event = key.event.to_string();
            self.seconds.with_label_values(&[name, &event, label(key.hint)])
        });
        series.observe(took.as_secs_f64());
    }
}

/// Returns the value of the label `hint`.
fn label(hint: QueueingHint) -> &'static str {
    match hint {
        QueueingHint::Queue => "Queue",
        QueueingHint::Skip => "QueueSkip",
        QueueingHint::Error => "Error",
    }
}
