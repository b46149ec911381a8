//! Prometheus' protobuf format: `io.prometheus.client.MetricFamily`, each after its length.

use evenkeel_api::protobuf::wire;
use prometheus::proto::{Metric, MetricFamily, MetricType};

/// Writes families.
pub(super) fn encode(families: &[MetricFamily]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * 1024);
    let mut message = Message::default();
    for family in families {
        message.0.clear();
        message.family(family);
        wire::varint(&mut out, message.0.len() as u64);
        out.extend_from_slice(&message.0);
    }
    out
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn family(&mut self, family: &MetricFamily) {
        self.text(1, family.name());
        self.text(2, family.help());
        self.unsigned(
            3,
            match family.get_field_type() {
                MetricType::COUNTER => 0,
                MetricType::GAUGE => 1,
                MetricType::SUMMARY => 2,
                MetricType::UNTYPED => 3,
                MetricType::HISTOGRAM => 4,
            },
        );
        for metric in family.get_metric() {
            self.nested(4, |message| message.metric(family.get_field_type(), metric));
        }
    }

    fn metric(&mut self, kind: MetricType, metric: &Metric) {
        for pair in metric.get_label() {
            self.nested(1, |label| {
                label.text(1, pair.name());
                label.text(2, pair.value());
            });
        }
        match kind {
            MetricType::GAUGE => self.nested(2, |m| m.double(1, metric.get_gauge().get_value())),
            MetricType::COUNTER => {
                self.nested(3, |m| m.double(1, metric.get_counter().get_value()));
            }
            MetricType::UNTYPED => self.nested(5, |m| m.double(1, 0.0)),
            MetricType::SUMMARY => self.nested(4, |m| {
                let summary = metric.get_summary();
                m.unsigned(1, summary.sample_count());
                m.double(2, summary.sample_sum());
                for quantile in summary.get_quantile() {
                    m.nested(3, |m| {
                        m.double(1, quantile.quantile());
                        m.double(2, quantile.value());
                    });
                }
            }),
            MetricType::HISTOGRAM => self.nested(7, |m| {
                let histogram = metric.get_histogram();
                m.unsigned(1, histogram.get_sample_count());
                m.double(2, histogram.get_sample_sum());
                for bucket in histogram.get_bucket() {
                    m.nested(3, |m| {
                        m.unsigned(1, bucket.cumulative_count());
                        m.double(2, bucket.upper_bound());
                    });
                }
            }),
        }
    }

    fn unsigned(&mut self, field: u32, value: u64) {
        wire::number(&mut self.0, field, value);
    }

    fn double(&mut self, field: u32, value: f64) {
        wire::double(&mut self.0, field, value);
    }

    fn text(&mut self, field: u32, value: &str) {
        wire::bytes(&mut self.0, field, value.as_bytes());
    }

    /// A message within.
    fn nested(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        wire::message(&mut self.0, field, |out| {
            let mut inner = Self(std::mem::take(out));
            write(&mut inner);
            *out = inner.0;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{counters, histograms};
    use prometheus::Registry;

    #[test]
    fn bytes_are_as_the_schema_has_them() {
        let registry = Registry::new();
        counters(&registry, "a_total", "A.", &["l"]).with_label_values(&["v"]).inc();
        let value = 1f64.to_le_bytes();
        let family = [&[10, 7][..], b"a_total", &[18, 2], b"A.", &[24, 0, 34, 19]].concat();
        let metric = [&[10, 6, 10, 1][..], b"l", &[18, 1], b"v", &[26, 9, 9], &value].concat();
        assert_eq!(encode(&registry.gather()), [&[36], &family[..], &metric].concat());
    }

    #[test]
    fn long_messages_have_long_lengths() {
        let registry = Registry::new();
        let bounds: Vec<f64> = (0..40).map(f64::from).collect();
        histograms(&registry, "h", "H.", &bounds, &[])
            .with_label_values(&[] as &[&str])
            .observe(3.0);
        let bytes = encode(&registry.gather());
        // Family, metric and histogram are all longer than 127 bytes: two bytes of length each.
        let length = usize::from(bytes[0] & 0x7f) | usize::from(bytes[1]) << 7;
        assert_eq!(bytes.len(), length + 2);
    }
}
