//! Samples of the process's metrics over the last minutes and hours, for the plots.

use crate::view::plot::{Plot, Range, Series, plot};
use evenkeel_api::time::Timestamp;
use prometheus::proto::{LabelPair, MetricFamily};
use std::{collections::VecDeque, time::Duration};

/// Interval between two samples, and between the checks whether a page has changed.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);
/// Interval between two samples while the console is not viewed, because gathering metrics costs CPU.
pub(crate) const IDLE_INTERVAL: Duration = Duration::from_secs(20);
/// Time that plots of minutes show.
const MINUTES: Range = Range { seconds: 300.0, begin: "5 min ago" };
/// Number of kept samples: at least five minutes, and one before.
const MAX_SAMPLES: usize = 151;
/// Time that plots of hours show.
const HOURS: Range = Range { seconds: 21_600.0, begin: "6 h ago" };
/// Minimum interval between two samples of hours: a plot is 300 units wide.
const HOURS_INTERVAL: f64 = 72.0;
/// Number of kept samples of hours: at least six hours, and one before.
const MAX_HOURS_SAMPLES: usize = 301;

/// Methods of requests that write.
const WRITES: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

/// Number and duration of requests, or of other work, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Work {
    count: f64,
    seconds: f64,
}

/// Returns a gauge of a sample. `None` if the process does not have it.
type Level = fn(&Sample) -> Option<f64>;

/// Metrics at one time. Counters count since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sample {
    writes: Work,
    reads: Work,
    /// Keys that wait for a worker, in all queues. `None` in a process without queues.
    depth: Option<f64>,
    /// Pods in the scheduler's queues. `None` in a process without a scheduler.
    pending: Option<f64>,
}

impl Sample {
    /// Reads a sample from gathered metrics.
    pub(crate) fn of<'a>(families: impl IntoIterator<Item = &'a MetricFamily>) -> Self {
        let mut sample = Self::default();
        for family in families {
            let metrics = family.get_metric();
            let gauge = || metrics.iter().map(|metric| metric.get_gauge().get_value()).sum::<f64>();
            match family.name() {
                "workqueue_depth" => *sample.depth.get_or_insert_default() += gauge(),
                "scheduler_pending_pods" => *sample.pending.get_or_insert_default() += gauge(),
                "rest_client_request_duration_seconds" => {
                    for metric in metrics {
                        let verb = metric.get_label().iter().find(|label| label.name() == "verb");
                        let verb = verb.map(LabelPair::value).unwrap_or_default();
                        let is_write = WRITES.contains(&verb);
                        let work = if is_write { &mut sample.writes } else { &mut sample.reads };
                        let histogram = metric.get_histogram();
                        // The number of requests is far below the 53 bits of a mantissa.
                        work.count += histogram.get_sample_count() as f64;
                        work.seconds += histogram.get_sample_sum();
                    }
                }
                _ => {}
            }
        }
        sample
    }

    /// Returns the sample without the lengths of work queues.
    pub(crate) fn without_queues(self) -> Self {
        Self { depth: None, ..self }
    }
}

/// Returns the number of pods in each queue of the scheduler, by the queue's name.
pub(crate) fn pods_by_queue<'a>(
    families: impl IntoIterator<Item = &'a MetricFamily>,
) -> Vec<(String, u64)> {
    let pending = families.into_iter().filter(|family| family.name() == "scheduler_pending_pods");
    let pods = pending.flat_map(MetricFamily::get_metric).map(|metric| {
        let queue = metric.get_label().iter().find(|label| label.name() == "queue");
        let name = queue.map(LabelPair::value).unwrap_or_default();
        // A gauge of whole numbers.
        (format!("queue {name}"), metric.get_gauge().get_value() as u64)
    });
    pods.collect()
}

/// The last samples of some minutes, and fewer of some hours.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    minutes: Ring,
    hours: Ring,
}

impl Samples {
    /// Adds a sample. Drops the oldest one if there are too many.
    pub(crate) fn push(&mut self, at: Timestamp, sample: Sample) {
        self.minutes.push(at, sample, MAX_SAMPLES);
        let is_due = |last: &(Timestamp, Sample)| seconds(at, last.0) >= HOURS_INTERVAL;
        if self.hours.0.back().is_none_or(is_due) {
            self.hours.push(at, sample, MAX_HOURS_SAMPLES);
        }
    }

    /// Drops all samples.
    pub(crate) fn clear(&mut self) {
        self.minutes.0.clear();
        self.hours.0.clear();
    }

    /// Returns whether there are two samples, so that a line can be drawn.
    pub(crate) fn has_interval(&self) -> bool {
        self.minutes.0.len() >= 2
    }

    /// Draws the plots of the last minutes.
    pub(crate) fn plots(&self, now: Timestamp) -> Vec<Plot> {
        self.minutes.plots(now, MINUTES)
    }

    /// Draws the plots of the last hours, up to the newest hourly-range sample, so that they change only with these samples.
    /// Empty while the plots of minutes show all samples.
    pub(crate) fn history(&self) -> Vec<Plot> {
        match (self.hours.0.front(), self.hours.0.back()) {
            (Some((oldest, _)), Some((newest, _)))
                if seconds(*newest, *oldest) > MINUTES.seconds =>
            {
                self.hours.plots(*newest, HOURS)
            }
            _ => Vec::new(),
        }
    }
}

/// Samples, oldest first.
#[derive(Debug, Default)]
struct Ring(VecDeque<(Timestamp, Sample)>);

impl Ring {
    fn push(&mut self, at: Timestamp, sample: Sample, max: usize) {
        if self.0.len() == max {
            self.0.pop_front();
        }
        self.0.push_back((at, sample));
    }

    /// Draws the plots of a range up to `now`.
    fn plots(&self, now: Timestamp, range: Range) -> Vec<Plot> {
        let rates = |name, value: fn(&Sample, &Sample, f64) -> Option<f64>| {
            let pairs = self.0.iter().zip(self.0.iter().skip(1));
            let points = pairs.map(|((before, old), (at, new))| {
                (seconds(now, *at), value(old, new, seconds(*at, *before)))
            });
            Series { name, points: points.collect() }
        };
        let levels = |value: Level| {
            let points = self.0.iter().map(|(at, sample)| (seconds(now, *at), value(sample)));
            Series { name: "", points: points.collect() }
        };
        let writes = rates("", |old, new, elapsed| {
            (elapsed > 0.0).then(|| (new.writes.count - old.writes.count).max(0.0) / elapsed)
        });
        let latencies = [
            rates("writes", |old, new, _| mean_milliseconds(old.writes, new.writes)),
            rates("reads", |old, new, _| mean_milliseconds(old.reads, new.reads)),
        ];
        let mut plots = vec![
            plot("Writes of the components", "/s", range, &[writes]),
            plot("Mean latency of their requests", "ms", range, &latencies),
        ];
        let queues: [(_, Level); 2] = [
            ("Keys that wait for a worker", |sample| sample.depth),
            ("Pods in the scheduler's queues", |sample| sample.pending),
        ];
        for (title, value) in queues {
            if self.0.iter().any(|(_, sample)| value(sample).is_some()) {
                plots.push(plot(title, "", range, &[levels(value)]));
            }
        }
        plots
    }
}

/// Returns the seconds between two times.
fn seconds(later: Timestamp, earlier: Timestamp) -> f64 {
    later.duration_since(earlier).as_secs_f64()
}

/// Returns the mean duration of the requests between two samples, or `None` if there were none.
fn mean_milliseconds(old: Work, new: Work) -> Option<f64> {
    let count = new.count - old.count;
    (count > 0.0).then(|| (new.seconds - old.seconds).max(0.0) * 1000.0 / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::metrics::{histograms, int_gauges};
    use prometheus::Registry;

    #[test]
    fn a_sample_has_requests_by_kind_and_lengths_of_queues() {
        let registry = Registry::new();
        let name = "rest_client_request_duration_seconds";
        let latency = histograms(&registry, name, "Time.", &[1.0], &["verb", "host"]);
        for (verb, seconds) in [("POST", 0.5), ("PATCH", 1.5), ("GET", 3.0)] {
            latency.with_label_values(&[verb, "h"]).observe(seconds);
        }
        let depth = int_gauges(&registry, "workqueue_depth", "Keys.", &["name"]);
        depth.with_label_values(&["a"]).set(2);
        depth.with_label_values(&["b"]).set(3);
        let pending = int_gauges(&registry, "scheduler_pending_pods", "Pods.", &["queue"]);
        pending.with_label_values(&["active"]).set(7);
        let want = Sample {
            writes: Work { count: 2.0, seconds: 2.0 },
            reads: Work { count: 1.0, seconds: 3.0 },
            depth: Some(5.0),
            pending: Some(7.0),
        };
        assert_eq!(Sample::of(&registry.gather()), want);
        assert_eq!(pods_by_queue(&registry.gather()), [("queue active".to_owned(), 7)]);
    }

    #[test]
    fn plots_show_rates_and_means_between_samples() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let sample =
            |count, seconds| Sample { writes: Work { count, seconds }, ..Sample::default() };
        let mut samples = Samples::default();
        for (second, count, seconds) in
            [(0, 0.0, 0.0), (2, 10.0, 0.02), (4, 10.0, 0.02), (6, 30.0, 0.1)]
        {
            samples.push(at(second), sample(count, seconds));
        }
        let plots = samples.plots(at(6));
        assert_eq!(plots[0].label, "Writes of the components: now 10 /s; highest 10 /s");
        assert_eq!(
            plots[1].label,
            "Mean latency of their requests: now writes 4 ms, reads –; highest 4 ms"
        );
        assert_eq!(plots[1].lines[0].parts.len(), 2, "a gap without requests");
        assert_eq!(plots.len(), 2, "a process without queues has no plots of them");
        samples.push(at(1000), Sample { pending: Some(3.0), ..Sample::default() });
        assert_eq!(samples.plots(at(1000)).len(), 3);
    }

    #[test]
    fn samples_of_hours_are_kept_apart_from_those_of_minutes() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut samples = Samples::default();
        let push = |samples: &mut Samples, second: i32| {
            let writes = Work { count: f64::from(second), seconds: 0.0 };
            samples.push(at(second.into()), Sample { writes, ..Sample::default() });
        };
        for second in (0..=300).step_by(2) {
            push(&mut samples, second);
        }
        assert!(samples.history().is_empty(), "the plots of minutes show it");
        for second in (302..=30_000).step_by(2) {
            push(&mut samples, second);
        }
        assert_eq!((samples.minutes.0.len(), samples.hours.0.len()), (151, 301));
        let (minutes, hours) = (samples.plots(at(30_000)), samples.history());
        assert_eq!((minutes[0].begin, hours[0].begin), ("5 min ago", "6 h ago"));
        assert_eq!(hours[0].label, "Writes of the components: now 1 /s; highest 1 /s");
        let points = |plot: &Plot| -> Vec<String> {
            plot.lines[0].parts[0].split(' ').map(str::to_owned).collect()
        };
        let (minutes, hours) = (points(&minutes[0]), points(&hours[0]));
        assert_eq!((minutes.len(), hours.len()), (150, 300));
        assert_eq!((&*hours[0], &*hours[299]), ("1.0,4.0", "300.0,4.0"));
    }
}
