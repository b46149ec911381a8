//! Compares names, types, labels and buckets of the metrics with the table of upstream's metrics.

use super::{DeviceWaitResult, Metrics, NO_LABELS, VolumeStage};
use crate::{
    framework::QueueingHint,
    queue::{EventLabel, HintKey},
};
use prometheus::{
    HistogramVec, Registry,
    proto::{Bucket, LabelPair, Metric, MetricFamily, MetricType},
};
use std::{collections::BTreeMap, time::Duration};

/// Table of upstream's metrics.
const TABLE: &str = include_str!("../../data/metrics.tsv");

/// Returns the metrics by name.
fn families(registry: &Registry) -> BTreeMap<String, MetricFamily> {
    registry.gather().into_iter().map(|family| (family.name().to_owned(), family)).collect()
}

/// Returns all metrics after each recorded a value.
fn all_in_use() -> BTreeMap<String, MetricFamily> {
    let registry = Registry::new();
    let metrics = Metrics::register(&registry);
    let observe = |histogram: &HistogramVec, label_count: usize| {
        histogram.with_label_values(&["x", "y", "z"][..label_count]).observe(1.0);
    };
    metrics.attempts.with_label_values(&["r", "p"]).inc();
    for (histogram, label_count) in [
        (&metrics.attempt_seconds, 2),
        (&metrics.sli_seconds, 1),
        (&metrics.extension_point_seconds, 3),
        (&metrics.plugin_seconds, 3),
        (&metrics.permit_wait_seconds, 1),
        (&metrics.queue.event_seconds, 1),
        (&metrics.preemption.task_seconds, 1),
    ] {
        observe(histogram, label_count);
    }
    for (counters, label_count) in [
        (&metrics.plugin_evaluations, 3),
        (&metrics.queue.incoming_pods, 2),
        (&metrics.queue.incoming_entities, 3),
        (&metrics.preemption.tasks, 1),
    ] {
        counters.with_label_values(&["x", "y", "z"][..label_count]).inc();
    }
    let queue = &metrics.queue;
    for (gauges, label_count) in [
        (&queue.queued_entities, 2),
        (&queue.unschedulable_pods, 2),
        (&queue.in_flight_events, 1),
        (&queue.cache_size, 1),
        (&queue.goroutines, 1),
    ] {
        gauges.with_label_values(&["x", "y"][..label_count]).set(1);
    }
    let key =
        HintKey { profile: 0, plugin: 0, event: EventLabel::NEW_POD, hint: QueueingHint::Queue };
    metrics.hints.observe(key, "x", Duration::from_secs(1));
    metrics.claims.count_creation(true);
    metrics.claims.observe_device_wait(
        "p",
        "d",
        true,
        DeviceWaitResult::Ready,
        Duration::from_secs(1),
    );
    metrics.claims.count_volume_error(VolumeStage::Bind);
    metrics.attempts_per_pod.with_label_values(NO_LABELS).observe(1.0);
    families(&registry)
}

/// Returns the label names, sorted and joined.
fn labels(metric: &Metric) -> String {
    let mut names: Vec<&str> = metric.get_label().iter().map(LabelPair::name).collect();
    names.sort_unstable();
    names.join(",")
}

/// Returns the upper bounds of the buckets, without infinity.
fn bounds(metric: &Metric) -> Vec<f64> {
    let buckets = metric.get_histogram().get_bucket().iter().map(Bucket::upper_bound);
    buckets.filter(|bound| bound.is_finite()).collect()
}

#[test]
fn all_metrics_equal_those_of_upstream() {
    let mut families = all_in_use();
    for row in TABLE.lines().skip(1) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [name, kind, _, _, expected, buckets] = cells[..] else { panic!("{row}") };
        let of_scheduler = name.starts_with("scheduler_") || name.starts_with("dynamic_resource_");
        if !of_scheduler {
            continue;
        }
        let family = families.remove(name).unwrap_or_else(|| panic!("{name} is missing"));
        let found = match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            MetricType::HISTOGRAM => "histogram",
            _ => "other",
        };
        let metric = &family.get_metric()[0];
        assert_eq!((found, &*labels(metric)), (kind, expected), "{name}");
        let expected = buckets.split(',').filter(|bound| !bound.is_empty());
        let expected: Vec<f64> = expected.map(|bound| bound.parse().unwrap()).collect();
        assert_eq!(bounds(metric), expected, "{name}");
    }
    assert_eq!(families.keys().collect::<Vec<_>>(), Vec::<&String>::new(), "not in the table");
}

#[test]
fn waits_for_devices_are_recorded_by_driver() {
    let registry = Registry::new();
    let metrics = Metrics::register(&registry);
    let duration = Duration::from_millis(300);
    metrics.claims().observe_device_wait("p", "one", true, DeviceWaitResult::Failed, duration);
    metrics.claims().observe_device_wait("p", "other", false, DeviceWaitResult::Failed, duration);
    let families = families(&registry);
    let allocations = families["scheduler_dra_bindingconditions_allocations_total"].get_metric();
    assert_eq!(allocations.len(), 1, "only devices with binding conditions are counted");
    let values: Vec<&str> = allocations[0].get_label().iter().map(LabelPair::value).collect();
    assert_eq!(values, ["one", "p", "failure"]);
    let waits = families["scheduler_dra_bindingconditions_wait_duration_seconds"].get_metric();
    let sums: Vec<f64> =
        waits.iter().map(|metric| metric.get_histogram().get_sample_sum()).collect();
    assert_eq!(sums, [0.3, 0.3]);
}
