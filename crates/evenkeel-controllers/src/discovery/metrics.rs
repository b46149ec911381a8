//! Metrics of both EndpointSlice controllers: counters of writes, and gauges of desired endpoints, of existing
//! slices, and of the slices that a perfect allocation would need.

use super::slice::{ServiceCounts, Writes};
use evenkeel_runtime::{
    metrics,
    plan::{Key, Outcomes},
};
use prometheus::{Gauge, IntCounterVec, Registry};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Counts the successful writes by operation.
pub(super) fn count_writes(writes: &Writes, outcomes: &Outcomes, counter: &IntCounterVec) {
    // The events precede the writes.
    let write_outcomes = outcomes.0.iter().skip(writes.events.len());
    for (operation, outcome) in writes.operations.iter().zip(write_outcomes) {
        let counter = counter.with_label_values(&[operation.name()]);
        counter.inc_by(u64::from(outcome.succeeded));
    }
}

/// Gauges of the sums over all Services. Upstream: `metrics.Cache`.
#[derive(Debug)]
pub(super) struct SliceGauges {
    endpoints: Gauge,
    slices: Gauge,
    ideal: Gauge,
    totals: Mutex<Totals>,
}

/// The counts of each Service, and their sums.
#[derive(Debug, Default)]
struct Totals {
    sums: ServiceCounts,
    by_service: HashMap<Key, ServiceCounts>,
}

impl SliceGauges {
    /// Registers the gauges under these names.
    pub(super) fn new(registry: &Registry, [endpoints, slices, ideal]: [&'static str; 3]) -> Self {
        Self {
            endpoints: metrics::gauge(registry, endpoints, "Number of endpoints desired"),
            slices: metrics::gauge(registry, slices, "Number of EndpointSlices"),
            ideal: metrics::gauge(
                registry,
                ideal,
                "Number of EndpointSlices that would exist with perfect endpoint allocation",
            ),
            totals: Mutex::default(),
        }
    }

    /// Replaces the counts of a Service. `None` removes them.
    pub(super) fn set(&self, key: &Key, counts: Option<ServiceCounts>) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let Totals { sums, by_service } = &mut *totals;
        let before = match counts {
            Some(counts) => {
                *sums += counts;
                by_service.insert(key.clone(), counts)
            }
            None => by_service.remove(key),
        };
        let before = before.unwrap_or_default();
        sums.endpoints -= before.endpoints;
        sums.slices -= before.slices;
        sums.ideal -= before.ideal;
        self.endpoints.set(sums.endpoints as f64);
        self.slices.set(sums.slices as f64);
        self.ideal.set(sums.ideal as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_counts_are_subtracted() {
        let gauges = SliceGauges::new(&Registry::new(), ["endpoints", "slices", "ideal"]);
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        gauges.set(&a, Some(ServiceCounts { endpoints: 150, slices: 3, ideal: 2 }));
        gauges.set(&b, Some(ServiceCounts { endpoints: 1, slices: 1, ideal: 1 }));
        gauges.set(&a, Some(ServiceCounts { endpoints: 50, slices: 2, ideal: 1 }));
        let shown = || [gauges.endpoints.get(), gauges.slices.get(), gauges.ideal.get()];
        assert_eq!(shown(), [51.0, 3.0, 2.0]);
        gauges.set(&a, None);
        gauges.set(&a, None);
        assert_eq!(shown(), [1.0, 1.0, 1.0]);
    }
}
