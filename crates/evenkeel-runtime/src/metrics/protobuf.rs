//! Prometheus' protobuf format: a sequence of `io.prometheus.client.MetricFamily`, each with its length as a
//! prefix. The numbers in calls of `wire` are the field numbers of `metrics.proto`.

use evenkeel_api::protobuf::wire;
use prometheus::proto::{Metric, MetricFamily, MetricType};

/// Encodes metric families, each with its length as a prefix.
pub(super) fn encode(families: &[MetricFamily]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * 1024);
    let mut message = Vec::new();
    for family in families {
        message.clear();
        write_family(&mut message, family);
        wire::varint(&mut out, message.len() as u64);
        out.extend_from_slice(&message);
    }
    out
}

fn write_family(out: &mut Vec<u8>, family: &MetricFamily) {
    wire::bytes(out, 1, family.name().as_bytes());
    wire::bytes(out, 2, family.help().as_bytes());
    let kind = family.get_field_type();
    wire::number(
        out,
        3,
        match kind {
            MetricType::COUNTER => 0,
            MetricType::GAUGE => 1,
            MetricType::SUMMARY => 2,
            MetricType::UNTYPED => 3,
            MetricType::HISTOGRAM => 4,
        },
    );
    for metric in family.get_metric() {
        wire::message(out, 4, |out| write_metric(out, kind, metric));
    }
}

fn write_metric(out: &mut Vec<u8>, kind: MetricType, metric: &Metric) {
    for pair in metric.get_label() {
        wire::message(out, 1, |out| {
            wire::bytes(out, 1, pair.name().as_bytes());
            wire::bytes(out, 2, pair.value().as_bytes());
        });
    }
    let value = |out: &mut Vec<u8>, field, value| {
        wire::message(out, field, |out| wire::double(out, 1, value));
    };
    match kind {
        MetricType::GAUGE => value(out, 2, metric.get_gauge().get_value()),
        MetricType::COUNTER => value(out, 3, metric.get_counter().get_value()),
        MetricType::UNTYPED => value(out, 5, 0.0),
        MetricType::SUMMARY => wire::message(out, 4, |out| {
            let summary = metric.get_summary();
            wire::number(out, 1, summary.sample_count());
            wire::double(out, 2, summary.sample_sum());
            for quantile in summary.get_quantile() {
                wire::message(out, 3, |out| {
                    wire::double(out, 1, quantile.quantile());
                    wire::double(out, 2, quantile.value());
                });
            }
        }),
        MetricType::HISTOGRAM => wire::message(out, 7, |out| {
            let histogram = metric.get_histogram();
            wire::number(out, 1, histogram.get_sample_count());
            wire::double(out, 2, histogram.get_sample_sum());
            for bucket in histogram.get_bucket() {
                wire::message(out, 3, |out| {
                    wire::number(out, 1, bucket.cumulative_count());
                    wire::double(out, 2, bucket.upper_bound());
                });
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{counters, histograms};
    use prometheus::Registry;

    #[test]
    fn a_counter_has_the_bytes_of_the_schema() {
        let registry = Registry::new();
        counters(&registry, "a_total", "A.", &["l"]).with_label_values(&["v"]).inc();
        let value = 1f64.to_le_bytes();
        let family = [&[10, 7][..], b"a_total", &[18, 2], b"A.", &[24, 0, 34, 19]].concat();
        let metric = [&[10, 6, 10, 1][..], b"l", &[18, 1], b"v", &[26, 9, 9], &value].concat();
        assert_eq!(encode(&registry.gather()), [&[36], &family[..], &metric].concat());
    }

    #[test]
    fn lengths_above_127_take_two_bytes() {
        let registry = Registry::new();
        let bounds: Vec<f64> = (0..40).map(f64::from).collect();
        histograms(&registry, "h", "H.", &bounds, &[])
            .with_label_values(&[] as &[&str])
            .observe(3.0);
        let bytes = encode(&registry.gather());
        // Family, metric and histogram are all longer than 127 bytes, so each length takes two bytes.
        let length = usize::from(bytes[0] & 0x7f) | usize::from(bytes[1]) << 7;
        assert_eq!(bytes.len(), length + 2);
    }
}
