//! Metrics of authorization, under upstream's names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::config_reloads::values;
use super::conditions::Matched;

/// Upper bounds of the buckets of `apiserver_authorization_webhook_duration_seconds`.
const WEBHOOK_BOUNDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upper bounds of the buckets of `apiserver_authorization_match_condition_evaluation_seconds`.
const CONDITION_BOUNDS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

/// Counters of decisions and of calls of webhooks.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<Counts>);

/// Counts by rendered labels.
#[derive(Default)]
struct Counts {
    decisions: BTreeMap<String, u64>,
    evaluations: BTreeMap<String, u64>,
    fail_open: BTreeMap<String, u64>,
    durations: BTreeMap<String, Histogram>,
    condition_errors: BTreeMap<String, u64>,
    condition_exclusions: BTreeMap<String, u64>,
    condition_durations: BTreeMap<String, Histogram>,
}

/// Histogram of durations in seconds.
#[derive(Default)]
struct Histogram {
    /// Cumulative count for each upper bound.
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    fn observe(&mut self, bounds: &[f64], seconds: f64) {
        self.buckets.resize(bounds.len(), 0);
        for (bucket, bound) in self.buckets.iter_mut().zip(bounds) {
            *bucket += u64::from(seconds <= *bound);
        }
        self.count += 1;
        self.sum += seconds;
    }
}

fn webhook_labels(name: &str) -> String {
    format!("name=\"{name}\",type=\"Webhook\"")
}

impl Metrics {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a decision, `allowed` or `denied`, of the authorizer that made it.
    pub(crate) fn record_decision(&self, decision: &str, name: &str, authorizer_type: &str) {
        let labels = format!("decision=\"{decision}\",name=\"{name}\",type=\"{authorizer_type}\"");
        *self.counts().decisions.entry(labels).or_default() += 1;
    }

    /// Counts a call of a webhook by its result: `success`, `timeout` or `error`.
    pub(super) fn record_webhook_call(&self, name: &str, result: &str, elapsed: Duration) {
        let labels = format!("name=\"{name}\",result=\"{result}\"");
        let mut counts = self.counts();
        *counts.evaluations.entry(labels.clone()).or_default() += 1;
        let histogram = counts.durations.entry(labels).or_default();
        histogram.observe(WEBHOOK_BOUNDS, elapsed.as_secs_f64());
    }

    /// Counts a failure of a webhook that left the decision to the next authorizer.
    pub(super) fn record_fail_open(&self, name: &str, is_timeout: bool) {
        let result = if is_timeout { "timeout" } else { "error" };
        let labels = format!("name=\"{name}\",result=\"{result}\"");
        *self.counts().fail_open.entry(labels).or_default() += 1;
    }

    /// Counts an evaluation of a webhook's conditions.
    pub(super) fn record_match_conditions(&self, name: &str, matched: &Matched, elapsed: Duration) {
        let labels = webhook_labels(name);
        let mut counts = self.counts();
        match matched {
            Matched::Yes => {}
            Matched::No => {
                *counts.condition_exclusions.entry(labels.clone()).or_default() += 1;
            }
            Matched::Failed(_) => {
                *counts.condition_errors.entry(labels.clone()).or_default() += 1;
            }
        }
        let histogram = counts.condition_durations.entry(labels).or_default();
        histogram.observe(CONDITION_BOUNDS, elapsed.as_secs_f64());
    }

    /// Appends all metrics in the Prometheus text format.
    pub(crate) fn render(&self, out: &mut String) {
        let counts = self.counts();
        let mut family = Family { out };
        family.counters(
            "apiserver_authorization_decisions_total",
            "[ALPHA] Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
            &counts.decisions,
        );
        family.counters(
            "apiserver_authorization_webhook_evaluations_total",
            "[ALPHA] Round-trips to authorization webhooks.",
            &counts.evaluations,
        );
        family.counters(
            "apiserver_authorization_webhook_evaluations_fail_open_total",
            "[ALPHA] NoOpinion results due to webhook timeout or error.",
            &counts.fail_open,
        );
        family.histograms(
            "apiserver_authorization_webhook_duration_seconds",
            "[ALPHA] Request latency in seconds.",
            WEBHOOK_BOUNDS,
            &counts.durations,
        );
        family.counters(
            "apiserver_authorization_match_condition_evaluation_errors_total",
            "[ALPHA] Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.",
            &counts.condition_errors,
        );
        family.counters(
            "apiserver_authorization_match_condition_exclusions_total",
            "[ALPHA] Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
            &counts.condition_exclusions,
        );
        family.histograms(
            "apiserver_authorization_match_condition_evaluation_seconds",
            "[ALPHA] Authorization match condition evaluation time in seconds, split by authorizer type and name.",
            CONDITION_BOUNDS,
            &counts.condition_durations,
        );
    }
}

/// Writer of families of metrics. Omits empty families.
struct Family<'a> {
    out: &'a mut String,
}

impl Family<'_> {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn counters(&mut self, name: &str, help: &str, counts: &BTreeMap<String, u64>) {
        values(self.out, name, help, "counter", counts);
    }

    fn histograms(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[f64],
        histograms: &BTreeMap<String, Histogram>,
    ) {
        if histograms.is_empty() {
            return;
        }
        self.head(name, help, "histogram");
        for (labels, Histogram { buckets, count, sum }) in histograms {
            for (bucket, bound) in buckets.iter().zip(bounds) {
                let _ = writeln!(self.out, "{name}_bucket{{{labels},le=\"{bound}\"}} {bucket}");
            }
            let _ = writeln!(self.out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(self.out, "{name}_sum{{{labels}}} {sum}");
            let _ = writeln!(self.out, "{name}_count{{{labels}}} {count}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_upstreams_names_and_labels() {
        let metrics = Metrics::default();
        metrics.record_decision("allowed", "rbac", "RBAC");
        metrics.record_webhook_call("a.b", "success", Duration::from_millis(20));
        metrics.record_match_conditions("a.b", &Matched::No, Duration::ZERO);
        let mut text = String::new();
        metrics.render(&mut text);
        for line in [
            "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"rbac\",type=\"RBAC\"} 1\n",
            "apiserver_authorization_webhook_evaluations_total{name=\"a.b\",result=\"success\"} 1\n",
            "apiserver_authorization_webhook_duration_seconds_bucket{name=\"a.b\",result=\"success\",le=\"0.01\"} 0\n",
            "apiserver_authorization_webhook_duration_seconds_bucket{name=\"a.b\",result=\"success\",le=\"0.025\"} 1\n",
            "apiserver_authorization_match_condition_exclusions_total{name=\"a.b\",type=\"Webhook\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("fail_open"), "{text}");
    }
}
