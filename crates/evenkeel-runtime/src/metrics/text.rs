//! Text formats of metrics: Prometheus 0.0.4 and OpenMetrics 1.0.

use super::number::{push_escaped, push_float, push_openmetrics_float};
use prometheus::proto::{Metric, MetricFamily, MetricType};
use std::fmt::Write as _;

/// Text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Prometheus,
    OpenMetrics,
}

/// Encodes families, which must be sorted and have unique names.
pub(super) fn encode(families: &[MetricFamily], dialect: Dialect) -> String {
    let mut writer = Writer { out: String::with_capacity(64 * 1024), dialect };
    let mut labels = String::new();
    for family in families {
        let name = writer.write_head(family);
        for metric in family.get_metric() {
            labels.clear();
            for (index, pair) in metric.get_label().iter().enumerate() {
                labels.push_str(if index == 0 { "" } else { "," });
                labels.push_str(pair.name());
                labels.push_str("=\"");
                push_escaped(&mut labels, pair.value(), true);
                labels.push('"');
            }
            writer.write_metric(name, family.get_field_type(), &labels, metric);
        }
    }
    if dialect == Dialect::OpenMetrics {
        writer.out.push_str("# EOF\n");
    }
    writer.out
}

/// Writer of a metrics response.
struct Writer {
    out: String,
    dialect: Dialect,
}

/// Value of a sample. Counts are written as integers, like upstream's.
#[derive(Clone, Copy)]
enum Number {
    Count(u64),
    Float(f64),
}

impl Writer {
    /// Writes HELP and TYPE. Returns the name of the family's samples.
    fn write_head<'a>(&mut self, family: &'a MetricFamily) -> &'a str {
        let name = family.name();
        let (mut shown, mut kind) = (name, type_name(family.get_field_type()));
        if self.dialect == Dialect::OpenMetrics && kind == "counter" {
            // In OpenMetrics, a counter's samples end in `_total`. Renaming an upstream counter without that
            // suffix would break its users, so its type is `unknown`.
            match name.strip_suffix("_total") {
                Some(without_suffix) => shown = without_suffix,
                None => kind = "unknown",
            }
        }
        if self.dialect == Dialect::OpenMetrics && kind == "untyped" {
            kind = "unknown";
        }
        if !family.help().is_empty() {
            let _ = write!(self.out, "# HELP {shown} ");
            push_escaped(&mut self.out, family.help(), self.dialect == Dialect::OpenMetrics);
            self.out.push('\n');
        }
        let _ = writeln!(self.out, "# TYPE {shown} {kind}");
        name
    }

    fn write_metric(&mut self, name: &str, kind: MetricType, labels: &str, metric: &Metric) {
        match kind {
            MetricType::COUNTER => {
                self.write_sample(
                    name,
                    labels,
                    None,
                    Number::Float(metric.get_counter().get_value()),
                );
            }
            MetricType::GAUGE => {
                self.write_sample(
                    name,
                    labels,
                    None,
                    Number::Float(metric.get_gauge().get_value()),
                );
            }
            MetricType::HISTOGRAM => self.write_histogram(name, labels, metric),
            MetricType::SUMMARY => {
                let summary = metric.get_summary();
                for quantile in summary.get_quantile() {
                    let bound_label = Some(("quantile", quantile.quantile()));
                    self.write_sample(name, labels, bound_label, Number::Float(quantile.value()));
                }
                self.write_suffixed(
                    name,
                    "_sum",
                    labels,
                    None,
                    Number::Float(summary.sample_sum()),
                );
                self.write_suffixed(
                    name,
                    "_count",
                    labels,
                    None,
                    Number::Count(summary.sample_count()),
                );
            }
            MetricType::UNTYPED => self.write_sample(name, labels, None, Number::Float(0.0)),
        }
    }

    fn write_histogram(&mut self, name: &str, labels: &str, metric: &Metric) {
        let histogram = metric.get_histogram();
        let count = histogram.get_sample_count();
        for bucket in histogram.get_bucket() {
            let bound_label = Some(("le", bucket.upper_bound()));
            self.write_suffixed(
                name,
                "_bucket",
                labels,
                bound_label,
                Number::Count(bucket.cumulative_count()),
            );
        }
        let infinite_bound = Some(("le", f64::INFINITY));
        self.write_suffixed(name, "_bucket", labels, infinite_bound, Number::Count(count));
        self.write_suffixed(name, "_sum", labels, None, Number::Float(histogram.get_sample_sum()));
        self.write_suffixed(name, "_count", labels, None, Number::Count(count));
    }

    /// Writes a sample without a suffix.
    fn write_sample(
        &mut self,
        name: &str,
        labels: &str,
        bound_label: Option<(&str, f64)>,
        value: Number,
    ) {
        self.write_suffixed(name, "", labels, bound_label, value);
    }

    /// Writes a sample whose name is `name` and `suffix`. `bound_label` is the label `le` or `quantile`.
    fn write_suffixed(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &str,
        bound_label: Option<(&str, f64)>,
        value: Number,
    ) {
        let out = &mut self.out;
        out.push_str(name);
        out.push_str(suffix);
        if !labels.is_empty() || bound_label.is_some() {
            out.push('{');
            out.push_str(labels);
            if let Some((label, bound)) = bound_label {
                out.push_str(if labels.is_empty() { "" } else { "," });
                out.push_str(label);
                out.push_str("=\"");
                match self.dialect {
                    Dialect::Prometheus => push_float(out, bound),
                    Dialect::OpenMetrics => push_openmetrics_float(out, bound),
                }
                out.push('"');
            }
            out.push('}');
        }
        out.push(' ');
        match value {
            Number::Count(count) => drop(write!(out, "{count}")),
            Number::Float(value) => push_float(out, value),
        }
        out.push('\n');
    }
}

fn type_name(kind: MetricType) -> &'static str {
    match kind {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{counters, gauge, histograms};
    use expect_test::expect;
    use prometheus::Registry;

    fn families() -> Vec<MetricFamily> {
        let registry = Registry::new();
        let adds = counters(&registry, "adds_total", "Keys \"added\".", &["name", "kind"]);
        adds.with_label_values(&["a\"b", "x"]).inc_by(3);
        counters(&registry, "attempts", "Tries.", &["result"]).with_label_values(&["ok"]).inc();
        let seconds = histograms(&registry, "wait_seconds", "Waits.", &[1e-8, 1.0], &["name"]);
        seconds.with_label_values(&["q"]).observe(0.5);
        gauge(&registry, "up", "Whether up.").set(1.0);
        registry.gather()
    }

    #[test]
    fn encodes_the_prometheus_format() {
        expect![[r##"
            # HELP adds_total Keys "added".
            # TYPE adds_total counter
            adds_total{kind="x",name="a\"b"} 3
            # HELP attempts Tries.
            # TYPE attempts counter
            attempts{result="ok"} 1
            # HELP up Whether up.
            # TYPE up gauge
            up 1
            # HELP wait_seconds Waits.
            # TYPE wait_seconds histogram
            wait_seconds_bucket{name="q",le="1e-08"} 0
            wait_seconds_bucket{name="q",le="1"} 1
            wait_seconds_bucket{name="q",le="+Inf"} 1
            wait_seconds_sum{name="q"} 0.5
            wait_seconds_count{name="q"} 1
        "##]]
        .assert_eq(&encode(&families(), Dialect::Prometheus));
    }

    #[test]
    fn encodes_the_openmetrics_format() {
        expect![[r##"
            # HELP adds Keys \"added\".
            # TYPE adds counter
            adds_total{kind="x",name="a\"b"} 3
            # HELP attempts Tries.
            # TYPE attempts unknown
            attempts{result="ok"} 1
            # HELP up Whether up.
            # TYPE up gauge
            up 1
            # HELP wait_seconds Waits.
            # TYPE wait_seconds histogram
            wait_seconds_bucket{name="q",le="1e-08"} 0
            wait_seconds_bucket{name="q",le="1.0"} 1
            wait_seconds_bucket{name="q",le="+Inf"} 1
            wait_seconds_sum{name="q"} 0.5
            wait_seconds_count{name="q"} 1
            # EOF
        "##]]
        .assert_eq(&encode(&families(), Dialect::OpenMetrics));
    }
}
