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
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Counts the successful writes by operation.
pub(super) fn count_writes(writes: &Writes, outcomes: &Outcomes, counter: &IntCounterVec) {
    let of_writes = outcomes.0.iter().skip(writes.events.len());
    for (operation, outcome) in writes.operations.iter().zip(of_writes) {
        let counter = counter.with_label_values(&[operation.name()]);
        counter.inc_by(u64::from(outcome.succeeded));
    }
}

/// Gauges, and the counts of each Service whose sums they show. Upstream: `metrics.Cache`.
#[derive(Debug)]
pub(super) struct SliceGauges {
    endpoints: Gauge,
    slices: Gauge,
    ideal: Gauge,
    by_service: Mutex<(ServiceCounts, HashMap<Key, ServiceCounts>)>,
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
            by_service: Mutex::default(),
        }
    }

    /// Replaces the counts of a Service. `None` removes them.
    pub(super) fn set(&self, key: &Key, counts: Option<ServiceCounts>) {
        let mut by_service = self.lock();
        let (sum, all) = &mut *by_service;
        let before = match counts {
            Some(counts) => {
                *sum += counts;
                all.insert(key.clone(), counts)
            }
            None => all.remove(key),
        };
        let before = before.unwrap_or_default();
        sum.endpoints -= before.endpoints;
        sum.slices -= before.slices;
        sum.ideal -= before.ideal;
        self.endpoints.set(sum.endpoints as f64);
        self.slices.set(sum.slices as f64);
        self.ideal.set(sum.ideal as f64);
    }

    fn lock(&self) -> MutexGuard<'_, (ServiceCounts, HashMap<Key, ServiceCounts>)> {
        self.by_service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_counts_are_subtracted() {
        let sums = SliceGauges::new(&Registry::new(), ["endpoints", "slices", "ideal"]);
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        sums.set(&a, Some(ServiceCounts { endpoints: 150, slices: 3, ideal: 2 }));
        sums.set(&b, Some(ServiceCounts { endpoints: 1, slices: 1, ideal: 1 }));
        sums.set(&a, Some(ServiceCounts { endpoints: 50, slices: 2, ideal: 1 }));
        let shown = || [sums.endpoints.get(), sums.slices.get(), sums.ideal.get()];
        assert_eq!(shown(), [51.0, 3.0, 2.0]);
        sums.set(&a, None);
        sums.set(&a, None);
        assert_eq!(shown(), [1.0, 1.0, 1.0]);
    }
}
