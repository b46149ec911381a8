//! Filters and describes the metrics of a registry by upstream's stability rules and the metrics flags.
//!
//! All work is done at a scrape, so counting costs the same with any flags.

use super::catalog::{Catalog, Entry, OWN, Stability};
use crate::{
    features::{BINARY, Version},
    options::MetricsOptions,
};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

/// Value that replaces a label's value outside of the allow-list.
const UNEXPECTED: &str = "unexpected";

/// Rules of a program's metrics: stability, deprecation, and allowed label values.
pub(super) struct Policy {
    catalog: Catalog,
    current: Version,
    options: MetricsOptions,
    /// Metric, label and value of each label value that is not allowed. Each combination counts once.
    unexpected: Mutex<BTreeSet<String>>,
}

impl Policy {
    pub(super) fn new(catalog: Catalog, options: &MetricsOptions) -> Self {
        let options = options.clone();
        Self { catalog, current: BINARY, options, unexpected: Mutex::default() }
    }

    /// Returns the exposed families with their descriptions, sorted by name.
    pub(super) fn apply(&self, families: Vec<MetricFamily>) -> Vec<MetricFamily> {
        let (mut hidden, mut shown) = (0_u32, Vec::with_capacity(families.len() + 4));
        for mut family in families {
            if self.options.disabled.contains(family.name()) {
                continue;
            }
            if self.entry(&family).hidden_in(self.current) && !self.options.show_hidden {
                hidden += 1;
                continue;
            }
            self.constrain(&mut family);
            shown.push(family);
        }
        let about = self.about_metrics(&shown, hidden);
        shown.extend(about);
        shown.sort_by(|a, b| a.name().cmp(b.name()));
        self.described(shown)
    }

    /// Adds stability and deprecation to the help texts.
    pub(super) fn described(&self, mut families: Vec<MetricFamily>) -> Vec<MetricFamily> {
        for family in &mut families {
            let entry = self.entry(family);
            let Some(stability) = entry.stability else { continue };
            let since = entry.deprecated_in(self.current);
            let since =
                since.map(|version| format!("(Deprecated since {version}) ")).unwrap_or_default();
            family.set_help(format!("[{}] {since}{}", stability.label(), family.help()));
        }
        families
    }

    fn entry(&self, family: &MetricFamily) -> Entry {
        self.catalog.get(family.name()).copied().unwrap_or(OWN)
    }

    /// Returns the metrics about exposed, hidden and disabled metrics.
    fn about_metrics(&self, shown: &[MetricFamily], hidden: u32) -> Vec<MetricFamily> {
        let mut registered: BTreeMap<(Stability, &'static str), u32> = BTreeMap::new();
        let count_entry = |registered: &mut BTreeMap<_, u32>, entry: Entry| {
            if let Some(stability) = entry.stability {
                let since = entry.deprecated.map_or("", |(_, text)| text);
                *registered.entry((stability, since)).or_default() += 1;
            }
        };
        shown.iter().for_each(|family| count_entry(&mut registered, self.entry(family)));
        let unexpected = self.unexpected.lock().unwrap_or_else(PoisonError::into_inner).len();
        let mut about = vec![
            counter(
                "cardinality_enforcement_unexpected_categorizations_total",
                "Series with a label's value that --allow-metric-labels does not name.",
                [(Vec::new(), unexpected as f64)],
            ),
            counter(
                "disabled_metrics_total",
                "Metrics that --disabled-metrics names.",
                [(Vec::new(), self.options.disabled.len() as f64)],
            ),
            counter(
                "hidden_metrics_total",
                "Metrics that are not shown because they were deprecated long ago.",
                [(Vec::new(), f64::from(hidden))],
            ),
            // `registered_metrics_total` counts itself too. The one with values replaces this one below.
            counter("registered_metrics_total", "", []),
        ];
        about.iter().for_each(|family| count_entry(&mut registered, self.entry(family)));
        about.pop();
        let registered = registered.into_iter().map(|((stability, since), count)| {
            let labels =
                vec![("deprecated_version", since), ("stability_level", stability.label())];
            (labels, f64::from(count))
        });
        about.push(counter(
            "registered_metrics_total",
            "Metrics by stability and the version that deprecated them.",
            registered,
        ));
        about.retain(|family| !self.options.disabled.contains(family.name()));
        about
    }

    /// Replaces label values that are not allowed by `unexpected`, and adds up the series that become equal.
    fn constrain(&self, family: &mut MetricFamily) {
        let rules: Vec<_> = self
            .options
            .allowed
            .iter()
            .filter(|((metric, _), _)| metric == family.name())
            .map(|((_, label), values)| (label.as_str(), values))
            .collect();
        if rules.is_empty() {
            return;
        }
        let name = family.name().to_owned();
        let mut merged: BTreeMap<Vec<(String, String)>, Metric> = BTreeMap::new();
        for mut metric in family.take_metric() {
            let mut labels: Vec<LabelPair> = metric.take_label();
            for label in &mut labels {
                let is_unexpected = rules
                    .iter()
                    .any(|(name, values)| *name == label.name() && !values.contains(label.value()));
                if is_unexpected {
                    self.record_unexpected(&name, label);
                    label.set_value(UNEXPECTED.to_owned());
                }
            }
            let key = labels.iter().map(|l| (l.name().to_owned(), l.value().to_owned())).collect();
            metric.set_label(labels);
            match merged.get_mut(&key) {
                Some(sum) => add_series(sum, &metric, family.get_field_type()),
                None => {
                    merged.insert(key, metric);
                }
            }
        }
        family.set_metric(merged.into_values().collect());
    }

    fn record_unexpected(&self, metric: &str, label: &LabelPair) {
        let mut unexpected = self.unexpected.lock().unwrap_or_else(PoisonError::into_inner);
        unexpected.insert(format!("{metric},{},{}", label.name(), label.value()));
    }
}

fn counter<'a>(
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, f64)>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(MetricType::COUNTER);
    let metric = |(labels, value): (Vec<(&str, &str)>, f64)| {
        let pair = |(name, value): (&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.to_owned());
            pair.set_value(value.to_owned());
            pair
        };
        let mut metric = Metric::from_label(labels.into_iter().map(pair).collect());
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
        metric
    };
    family.set_metric(values.into_iter().map(metric).collect());
    family
}

/// Adds one series to another. Adds gauges too, because the program's gauges are counts.
fn add_series(sum: &mut Metric, added: &Metric, kind: MetricType) {
    match kind {
        MetricType::COUNTER => {
            let mut counter = Counter::default();
            counter.set_value(sum.get_counter().get_value() + added.get_counter().get_value());
            sum.set_counter(counter);
        }
        MetricType::GAUGE => {
            let mut gauge = Gauge::default();
            gauge.set_value(sum.get_gauge().get_value() + added.get_gauge().get_value());
            sum.set_gauge(gauge);
        }
        MetricType::HISTOGRAM => {
            let (left, right) = (sum.get_histogram(), added.get_histogram());
            let mut histogram = Histogram::default();
            histogram.set_sample_count(left.get_sample_count() + right.get_sample_count());
            histogram.set_sample_sum(left.get_sample_sum() + right.get_sample_sum());
            let buckets = left.get_bucket().iter().zip(right.get_bucket()).map(|(left, right)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(left.upper_bound());
                bucket.set_cumulative_count(left.cumulative_count() + right.cumulative_count());
                bucket
            });
            histogram.set_bucket(buckets.collect());
            sum.set_histogram(histogram);
        }
        // This program has no summaries, and untyped metrics have no value.
        MetricType::SUMMARY | MetricType::UNTYPED => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::metrics::{answer, counters, gauge, histograms};
    use prometheus::Registry;

    const TABLE: &str = "h\nadds_total\tcounter\tBETA\t\tname\t\nold_total\tcounter\tALPHA\t1.30.0\t\t\n\
        waning_total\tcounter\tSTABLE\t1.36.0\t\t\nprocess_open_fds\tgauge\t\t\t\t\n";

    fn shown(options: &MetricsOptions) -> String {
        let registry = Registry::new();
        let adds = counters(&registry, "adds_total", "Adds.", &["name"]);
        for (name, n) in [("a", 1), ("b", 2), ("c", 4)] {
            adds.with_label_values(&[name]).inc_by(n);
        }
        let seconds = histograms(&registry, "seconds", "Seconds.", &[1.0], &["name"]);
        seconds.with_label_values(&["a"]).observe(0.5);
        seconds.with_label_values(&["b"]).observe(2.0);
        for name in ["old_total", "waning_total"] {
            counters(&registry, name, "Old.", &[]).with_label_values(&[] as &[&str]).inc();
        }
        gauge(&registry, "process_open_fds", "Files.").set(3.0);
        let policy = Policy::new(super::super::catalog::parse(TABLE), options);
        let text = answer(&http::HeaderMap::new(), &policy.apply(registry.gather()));
        String::from_utf8(text.body().to_vec()).unwrap()
    }

    #[track_caller]
    fn check(options: &MetricsOptions, has: &[&str], lacks: &[&str]) {
        let text = shown(options);
        for line in has {
            assert!(text.lines().any(|present| present == *line), "{line} is not in\n{text}");
        }
        for word in lacks {
            assert!(!text.contains(word), "{word} is in\n{text}");
        }
    }

    #[test]
    fn help_contains_stability_and_old_metrics_are_hidden() {
        check(
            &MetricsOptions::default(),
            &[
                "# HELP adds_total [BETA] Adds.",
                "# HELP process_open_fds Files.",
                "# HELP seconds [ALPHA] Seconds.",
                "# HELP waning_total [STABLE] (Deprecated since 1.36.0) Old.",
                "hidden_metrics_total 1",
                "disabled_metrics_total 0",
                "registered_metrics_total{deprecated_version=\"\",stability_level=\"BETA\"} 1",
                "registered_metrics_total{deprecated_version=\"1.36.0\",stability_level=\"STABLE\"} 1",
            ],
            &["old_total"],
        );
        check(
            &MetricsOptions { show_hidden: true, ..MetricsOptions::default() },
            &["# HELP old_total [ALPHA] (Deprecated since 1.30.0) Old.", "hidden_metrics_total 0"],
            &[],
        );
    }

    #[test]
    fn disabled_metrics_are_not_shown_even_if_hidden_ones_are() {
        let disabled = ["adds_total", "old_total", "never_was"].map(str::to_owned);
        let options = MetricsOptions {
            show_hidden: true,
            disabled: disabled.into(),
            ..MetricsOptions::default()
        };
        check(&options, &["disabled_metrics_total 3"], &["adds_total", "old_total"]);
    }

    #[test]
    fn values_that_are_not_allowed_become_one_series() {
        let rule = |metric: &str| ((metric.to_owned(), "name".to_owned()), ["a".to_owned()].into());
        let options = MetricsOptions {
            allowed: [rule("adds_total"), rule("seconds")].into(),
            ..MetricsOptions::default()
        };
        check(
            &options,
            &[
                "adds_total{name=\"a\"} 1",
                "adds_total{name=\"unexpected\"} 6",
                "seconds_bucket{name=\"unexpected\",le=\"1\"} 0",
                "seconds_count{name=\"unexpected\"} 1",
                "cardinality_enforcement_unexpected_categorizations_total 3",
            ],
            &["name=\"b\"", "name=\"c\""],
        );
    }
}
