//! Metrics: registration with upstream's names, and the responses of the metrics endpoint.

mod answer;
mod clusters;
mod number;
pub mod process;
mod protobuf;
mod text;

pub use answer::answer;
pub(crate) use clusters::ClusterRegistries;

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts,
    Registry, core::Collector,
};

/// Registers `collector` and returns it. If the name is already registered, logs an error; the collector still counts,
/// but is not exposed.
///
/// ```
/// use evenkeel_runtime::metrics;
/// let registry = prometheus::Registry::new();
/// let adds = metrics::counters(&registry, "workqueue_adds_total", "Adds handled by a queue.", &["name"]);
/// adds.with_label_values(&["replicaset"]).inc();
/// assert_eq!(registry.gather()[0].name(), "workqueue_adds_total");
/// ```
pub fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    if let Err(error) = registry.register(Box::new(collector.clone())) {
        let name = collector.desc().first().map_or("", |desc| desc.fq_name.as_str());
        tracing::error!(metric = name, %error, "metric is not exposed");
    }
    collector
}

/// Registers a counter with labels.
pub fn counters(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    labels: &[&str],
) -> IntCounterVec {
    let vec = IntCounterVec::new(Opts::new(name, help), labels)
        .expect("name and labels are valid literals");
    register(registry, vec)
}

/// Registers an integer gauge with labels.
pub fn int_gauges(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    labels: &[&str],
) -> IntGaugeVec {
    let vec = IntGaugeVec::new(Opts::new(name, help), labels)
        .expect("name and labels are valid literals");
    register(registry, vec)
}

/// Registers a gauge with labels.
pub fn gauges(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    labels: &[&str],
) -> GaugeVec {
    let vec =
        GaugeVec::new(Opts::new(name, help), labels).expect("name and labels are valid literals");
    register(registry, vec)
}

/// Registers a gauge without labels.
pub fn gauge(registry: &Registry, name: &'static str, help: &'static str) -> Gauge {
    register(registry, Gauge::new(name, help).expect("name is a valid literal"))
}

/// Registers a histogram with labels and these upper bounds of its buckets.
pub fn histograms(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    bounds: &[f64],
    labels: &[&str],
) -> HistogramVec {
    let opts = HistogramOpts::new(name, help).buckets(bounds.to_vec());
    let vec = HistogramVec::new(opts, labels).expect("name, labels and rising bounds are literals");
    register(registry, vec)
}

/// Registers a histogram without labels, with these upper bounds of its buckets.
pub fn histogram(registry: &Registry, name: &str, help: &str, bounds: &[f64]) -> Histogram {
    let opts = HistogramOpts::new(name, help).buckets(bounds.to_vec());
    let histogram = Histogram::with_opts(opts).expect("name and rising bounds are literals");
    register(registry, histogram)
}

/// Returns `count` bounds that start at `start` and grow by `factor`: client_golang's `ExponentialBuckets`. The
/// rounding is the same, because a bound is exposed as text.
pub fn exponential(start: f64, factor: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(start), |bound| Some(bound * factor)).take(count).collect()
}

/// client_golang's default bounds, in seconds.
pub const DEFAULT_SECONDS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Upper bounds for request durations in seconds, equal to those of upstream's rest client.
pub const REQUEST_SECONDS: &[f64] =
    &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Upper bounds for body sizes in bytes, from 64 bytes to 16 MiB, equal to those of upstream's rest client.
pub const BODY_BYTES: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_with_a_registered_name_still_counts() {
        let registry = Registry::new();
        let one = counters(&registry, "x_total", "X.", &["name"]);
        let two = counters(&registry, "x_total", "X.", &["name"]);
        one.with_label_values(&["a"]).inc();
        two.with_label_values(&["a"]).inc_by(5);
        assert_eq!(registry.gather()[0].get_metric()[0].get_counter().get_value(), 1.0);
        assert_eq!(two.with_label_values(&["a"]).get(), 5);
    }

    #[test]
    fn exponential_bounds_are_rounded_as_in_client_golang() {
        assert_eq!(exponential(10.0, 10.0, 3), [10.0, 100.0, 1000.0]);
        assert_eq!(exponential(10e-9, 10.0, 4)[3], 9.999_999_999_999_999e-6);
    }
}
