//! Metrics of workqueues, with upstream's names.

use super::Priority;
use crate::metrics::{counters, exponential, histograms, int_gauges};
use prometheus::{
    GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Labels of the metrics of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Labels {
    /// `name`, as of Kubernetes' programs.
    Name,
    /// `name` and `controller` of the same value, and `priority` of the depth, as of controller-runtime.
    NameAndController,
}

impl Labels {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Name => &["name"],
            Self::NameAndController => &["name", "controller"],
        }
    }

    fn values(self, name: &str) -> Vec<&str> {
        vec![name; self.names().len()]
    }
}

/// Metrics of all queues of a program: `workqueue_{adds_total, depth, queue_duration_seconds, work_duration_seconds,
/// unfinished_work_seconds, longest_running_processor_seconds, retries_total}{name}`.
#[derive(Clone)]
pub struct Metrics {
    labels: Labels,
    adds: IntCounterVec,
    /// Either this is registered, or `depths`.
    depth: IntGaugeVec,
    depths: Depths,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    retries: IntCounterVec,
    running: RunningWork,
}

impl Metrics {
    /// Registers the metrics, with the labels of Kubernetes' programs. Call it once for each registry.
    pub fn register(registry: &Registry) -> Self {
        Self::register_with(registry, Labels::Name)
    }

    /// Registers the metrics, with the labels of controller-runtime: also `controller`, with the value of `name`, and of the
    /// depth `priority`. Call it once for each registry.
    pub fn register_with_controller(registry: &Registry) -> Self {
        Self::register_with(registry, Labels::NameAndController)
    }

    fn register_with(registry: &Registry, label_set: Labels) -> Self {
        // The buckets span 10 ns to 10 s, as in component-base's workqueue metrics.
        let bounds = exponential(10e-9, 10.0, 10);
        let labels = label_set.names();
        let (depth_name, depth_help) = ("workqueue_depth", "Keys waiting in a queue.");
        let (depth, depths) = match label_set {
            Labels::Name => {
                (int_gauges(registry, depth_name, depth_help, labels), Depths::new(depth_help))
            }
            Labels::NameAndController => {
                let unused = IntGaugeVec::new(Opts::new(depth_name, depth_help), labels)
                    .expect("name and labels are valid literals");
                (unused, crate::metrics::register(registry, Depths::new(depth_help)))
            }
        };
        Self {
            labels: label_set,
            depth,
            depths,
            adds: counters(registry, "workqueue_adds_total", "Keys added to a queue.", labels),
            queue_duration: histograms(
                registry,
                "workqueue_queue_duration_seconds",
                "Seconds that keys waited in a queue.",
                &bounds,
                labels,
            ),
            work_duration: histograms(
                registry,
                "workqueue_work_duration_seconds",
                "Seconds that keys were worked on.",
                &bounds,
                labels,
            ),
            retries: counters(registry, "workqueue_retries_total", "Keys added for later.", labels),
            running: crate::metrics::register(registry, RunningWork::new(label_set)),
        }
    }

    pub(super) fn of_queue(&self, name: &str) -> QueueMetrics {
        let name = &self.labels.values(name)[..];
        QueueMetrics {
            adds: self.adds.with_label_values(name),
            depth: self.depth.with_label_values(name),
            queue_duration: self.queue_duration.with_label_values(name),
            work_duration: self.work_duration.with_label_values(name),
            retries: self.retries.with_label_values(name),
        }
    }

    /// Adds a queue to the gauges of running work. `ages` returns the seconds since the start of each key in process,
    /// or `None` after the queue was dropped.
    pub(super) fn observe_running(
        &self,
        name: &str,
        ages: impl Fn() -> Option<Vec<f64>> + Send + Sync + 'static,
    ) {
        let mut queues = self.running.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.push((name.to_owned(), Box::new(ages)));
    }

    /// Adds a queue to the depths by priority, if these are registered. `depths` returns the number of waiting keys, or `None`
    /// after the queue was dropped.
    pub(super) fn observe_depths(
        &self,
        name: &str,
        depths: impl Fn() -> Option<BTreeMap<Priority, usize>> + Send + Sync + 'static,
    ) {
        if self.labels == Labels::NameAndController {
            let mut queues = self.depths.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let known = [Priority::NORMAL].into();
            queues.push(QueueDepths { name: name.to_owned(), known, depths: Box::new(depths) });
        }
    }
}

pub(super) struct QueueMetrics {
    adds: IntCounter,
    depth: IntGauge,
    queue_duration: Histogram,
    work_duration: Histogram,
    retries: IntCounter,
}

impl QueueMetrics {
    pub(super) fn record_add(&self) {
        self.adds.inc();
        self.depth.inc();
    }

    pub(super) fn record_drop(&self, count: usize) {
        self.depth.sub(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn record_take(&self, waited: Duration) {
        self.depth.dec();
        self.queue_duration.observe(waited.as_secs_f64());
    }

    pub(super) fn record_done(&self, worked: Duration) {
        self.work_duration.observe(worked.as_secs_f64());
    }

    pub(super) fn record_retry(&self) {
        self.retries.inc();
    }
}

/// Function that returns the seconds since the start of each key in process, or `None` after its queue was dropped.
type Ages = Box<dyn Fn() -> Option<Vec<f64>> + Send + Sync>;

/// The two gauges of unfinished work, which are computed at each scrape.
#[derive(Clone)]
struct RunningWork {
    labels: Labels,
    unfinished: GaugeVec,
    longest: GaugeVec,
    queues: Arc<Mutex<Vec<(String, Ages)>>>,
}

impl RunningWork {
    fn new(labels: Labels) -> Self {
        let gauges = |name: &str, help: &str| {
            GaugeVec::new(Opts::new(name, help), labels.names())
                .expect("name and labels are valid literals")
        };
        Self {
            labels,
            unfinished: gauges(
                "workqueue_unfinished_work_seconds",
                "Seconds of work in progress, over all keys.",
            ),
            longest: gauges(
                "workqueue_longest_running_processor_seconds",
                "Seconds that the longest work has run.",
            ),
            queues: Arc::default(),
        }
    }
}

impl Collector for RunningWork {
    fn desc(&self) -> Vec<&Desc> {
        self.unfinished.desc().into_iter().chain(self.longest.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        // A dropped queue has no work, but a new queue may have its name. So reset all values and set them again.
        self.unfinished.reset();
        self.longest.reset();
        queues.retain(|(name, ages)| {
            let Some(ages) = ages() else { return false };
            let name = &self.labels.values(name)[..];
            self.unfinished.with_label_values(name).set(ages.iter().sum());
            self.longest.with_label_values(name).set(ages.iter().copied().fold(0.0, f64::max));
            true
        });
        // Keep the lock until here, so that concurrent scrapes do not reset each other's values.
        let mut families = self.unfinished.collect();
        families.extend(self.longest.collect());
        drop(queues);
        families
    }
}

/// Function that returns the number of waiting keys by priority, or `None` after its queue was dropped.
type CountByPriority = Box<dyn Fn() -> Option<BTreeMap<Priority, usize>> + Send + Sync>;

/// The depths of queues by priority, which are computed at each scrape.
///
/// Upstream: `depthWithPriorityMetric`.
#[derive(Clone)]
struct Depths {
    depth: IntGaugeVec,
    queues: Arc<Mutex<Vec<QueueDepths>>>,
}

struct QueueDepths {
    name: String,
    /// Priorities of a former scrape, whose depth may be 0 now.
    known: BTreeSet<Priority>,
    depths: CountByPriority,
}

impl Depths {
    fn new(help: &str) -> Self {
        let labels = &["name", "controller", "priority"];
        let depth = IntGaugeVec::new(Opts::new("workqueue_depth", help), labels)
            .expect("name and labels are valid literals");
        Self { depth, queues: Arc::default() }
    }
}

impl Collector for Depths {
    fn desc(&self) -> Vec<&Desc> {
        self.depth.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        self.depth.reset();
        queues.retain_mut(|QueueDepths { name, known, depths }| {
            let Some(depths) = depths() else { return false };
            known.extend(depths.keys().copied());
            for priority in &*known {
                let depth = depths.get(priority).copied().unwrap_or_default();
                let labels = [&**name, &**name, &priority.0.to_string()];
                let gauge = self.depth.with_label_values(&labels);
                gauge.set(i64::try_from(depth).unwrap_or(i64::MAX));
            }
            true
        });
        // Keep the lock until here, so that concurrent scrapes do not reset each other's values.
        let families = self.depth.collect();
        drop(queues);
        families
    }
}
