//! Metric of running controllers.

use evenkeel_runtime::metrics::int_gauges;
use prometheus::{IntGaugeVec, Registry};

/// Metric `running_managed_controllers{name,manager}`: 1 while a controller runs.
#[derive(Clone)]
pub struct RunningControllers {
    gauge: IntGaugeVec,
    manager: &'static str,
}

impl RunningControllers {
    /// Registers the metric for a program.
    pub fn register(registry: &Registry, manager: &'static str) -> Self {
        let gauge = int_gauges(
            registry,
            "running_managed_controllers",
            "1 while a controller runs in a manager, 0 when it has stopped.",
            &["name", "manager"],
        );
        Self { gauge, manager }
    }

    /// Records that a controller runs.
    pub fn started(&self, name: &str) {
        self.gauge.with_label_values(&[name, self.manager]).set(1);
    }

    /// Records that these controllers have stopped.
    pub fn stopped(&self, names: impl IntoIterator<Item = &'static str>) {
        for name in names {
            self.gauge.with_label_values(&[name, self.manager]).set(0);
        }
    }
}
