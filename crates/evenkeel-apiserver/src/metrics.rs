//! Metrics of the server in the Prometheus text format, under upstream's names.

mod sharding;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::resource::Table;
use crate::store::Store;
use evenkeel_apimachinery::group_version::GroupResource;
pub(crate) use sharding::ShardedWatch;

/// Metrics of requests, watches, connections and health checks.
#[derive(Default)]
pub(crate) struct Metrics {
    /// Number of finished requests.
    requests: Mutex<BTreeMap<Key, u64>>,
    /// Number of open watches.
    watches: Arc<AtomicI64>,
    sharded_watches: sharding::ShardedWatches,
    /// Number of open connections to processes and ports of pods.
    connections: Arc<AtomicI64>,
    /// Number of requests in flight: reads, then writes.
    inflight: [Arc<AtomicI64>; 2],
    /// Requests that the server terminated in self-defense, by code.
    terminations: Mutex<BTreeMap<Key, u64>>,
    /// Requests with truncated responses. Their keys have the code 0.
    aborts: Mutex<BTreeMap<Key, u64>>,
    /// Durations of requests in seconds, by verb.
    durations: Mutex<BTreeMap<&'static str, Histogram>>,
    /// Results of health checks by name of the check and endpoint (such as `livez`).
    checks: Mutex<BTreeMap<(&'static str, &'static str), CheckResults>>,
}

/// Results of one health check.
#[derive(Debug, Default)]
struct CheckResults {
    /// Whether the last check passed.
    passed: bool,
    successes: u64,
    errors: u64,
}

/// Upper bounds of the buckets for durations, in seconds.
const DURATION_BOUNDS: [f64; 12] =
    [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0, 2.0, 5.0, 20.0, 60.0];

/// Histogram of durations in seconds.
#[derive(Clone, Copy, Default)]
struct Histogram {
    /// Cumulative count for each upper bound.
    buckets: [u64; DURATION_BOUNDS.len()],
    count: u64,
    sum: f64,
}

/// One unit of a gauge. The drop decrements the gauge.
pub(crate) struct InFlight(Arc<AtomicI64>);

impl InFlight {
    fn new(gauge: &Arc<AtomicI64>) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(gauge.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Labels of a counter with the response code. The order of the fields is the order of the output.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    verb: &'static str,
    group: Arc<str>,
    version: Arc<str>,
    resource: Arc<str>,
    subresource: Arc<str>,
    scope: &'static str,
    dry_run: &'static str,
    code: u16,
}

/// Labels of a request's metrics.
#[derive(Clone, Default)]
pub(crate) struct Labels {
    pub(crate) verb: &'static str,
    pub(crate) group: Arc<str>,
    pub(crate) version: Arc<str>,
    pub(crate) resource: Arc<str>,
    pub(crate) subresource: Arc<str>,
    pub(crate) scope: &'static str,
    /// Value of `dryRun`, or `invalid`. Only `apiserver_request_total` has it.
    pub(crate) dry_run: &'static str,
}

impl From<(Labels, u16)> for Key {
    fn from((labels, code): (Labels, u16)) -> Self {
        let Labels { verb, group, version, resource, subresource, scope, dry_run } = labels;
        Self { verb, group, version, resource, subresource, scope, dry_run, code }
    }
}

/// Counts a request by its labels and code.
fn increment(counter: &Mutex<BTreeMap<Key, u64>>, labels: Labels, code: u16) {
    let mut counts = counter.lock().unwrap_or_else(PoisonError::into_inner);
    *counts.entry((labels, code).into()).or_default() += 1;
}

impl Metrics {
    /// Counts a finished request.
    pub(crate) fn count(&self, labels: Labels, code: u16) {
        increment(&self.requests, labels, code);
    }

    /// Counts a request that the server terminated in self-defense.
    pub(crate) fn record_termination(&self, labels: Labels, code: u16) {
        increment(&self.terminations, Labels { dry_run: "", ..labels }, code);
    }

    /// Counts a request whose response was truncated.
    pub(crate) fn record_abort(&self, labels: Labels) {
        increment(&self.aborts, Labels { dry_run: "", ..labels }, 0);
    }

    /// Counts a request as in flight until the result drops.
    pub(crate) fn in_flight(&self, mutating: bool) -> InFlight {
        InFlight::new(&self.inflight[usize::from(mutating)])
    }

    /// Records the duration of a request.
    pub(crate) fn took(&self, verb: &'static str, seconds: f64) {
        let mut durations = self.durations.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = durations.entry(verb).or_default();
        for (bucket, bound) in histogram.buckets.iter_mut().zip(DURATION_BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
        histogram.count += 1;
        histogram.sum += seconds;
    }

    /// Counts a watch until the result drops.
    pub(crate) fn watching(&self) -> InFlight {
        InFlight::new(&self.watches)
    }

    /// Counts a watch of some shards of a resource until the result drops.
    pub(crate) fn watching_shards(&self, resource: &GroupResource) -> ShardedWatch {
        self.sharded_watches.begin(resource)
    }

    /// Counts a connection to a process or a port until the result drops.
    pub(crate) fn long_running(&self) -> InFlight {
        InFlight::new(&self.connections)
    }

    /// Counts a health check and keeps its result.
    pub(crate) fn record_health_check(
        &self,
        endpoint: &'static str,
        check: &'static str,
        passed: bool,
    ) {
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let results = checks.entry((check, endpoint)).or_default();
        results.passed = passed;
        if passed {
            results.successes += 1;
        } else {
            results.errors += 1;
        }
    }

    /// Renders `/metrics/slis`: the results of health checks.
    pub(crate) fn render_checks(&self) -> String {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::from(
            "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n# TYPE kubernetes_healthcheck gauge\n",
        );
        for ((check, endpoint), results) in checks.iter() {
            let passed = u8::from(results.passed);
            let _ = writeln!(
                out,
                "kubernetes_healthcheck{{name=\"{check}\",type=\"{endpoint}\"}} {passed}"
            );
        }
        out.push_str("# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.\n# TYPE kubernetes_healthchecks_total counter\n");
        for ((check, endpoint), results) in checks.iter() {
            for (status, count) in [("error", results.errors), ("success", results.successes)] {
                if count > 0 {
                    let _ = writeln!(
                        out,
                        "kubernetes_healthchecks_total{{name=\"{check}\",status=\"{status}\",type=\"{endpoint}\"}} {count}"
                    );
                }
            }
        }
        out
    }

    /// Renders all metrics.
    pub(crate) fn render(&self, table: &Table, store: &Store) -> String {
        let mut out = String::from(
            "# HELP apiserver_request_total [STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.\n# TYPE apiserver_request_total counter\n",
        );
        for (key, count) in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = writeln!(
                out,
                "apiserver_request_total{{code=\"{}\",component=\"apiserver\",dry_run=\"{}\",group=\"{}\",resource=\"{}\",scope=\"{}\",subresource=\"{}\",verb=\"{}\",version=\"{}\"}} {count}",
                key.code,
                key.dry_run,
                key.group,
                key.resource,
                key.scope,
                key.subresource,
                key.verb,
                key.version
            );
        }
        out.push_str("# HELP apiserver_longrunning_requests [STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.\n# TYPE apiserver_longrunning_requests gauge\n");
        for (verb, count) in [("CONNECT", &*self.connections), ("WATCH", &*self.watches)] {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "apiserver_longrunning_requests{{component=\"apiserver\",verb=\"{verb}\"}} {count}"
            );
        }
        let bytes = store.object_bytes();
        let _ = writeln!(
            out,
            "# HELP apiserver_storage_size_bytes [STABLE] Size of all stored objects in bytes, without their history.\n# TYPE apiserver_storage_size_bytes gauge\napiserver_storage_size_bytes{{storage_cluster_id=\"etcd-0\"}} {bytes}"
        );
        out.push_str("# HELP apiserver_resource_objects [STABLE] Number of stored objects at the time of last check split by kind.\n# TYPE apiserver_resource_objects gauge\n");
        for resource in table.rows().all.iter().filter(|resource| resource.stored) {
            let count = store.count(&resource.resource_prefix);
            if count > 0 {
                let _ = writeln!(
                    out,
                    "apiserver_resource_objects{{group=\"{}\",resource=\"{}\"}} {count}",
                    resource.group(),
                    resource.plural()
                );
            }
        }
        self.sharded_watches.render(&mut out);
        self.render_terminations(&mut out);
        self.render_requests(&mut out);
        out
    }

    /// Writes counters of terminated and aborted requests.
    fn render_terminations(&self, out: &mut String) {
        out.push_str("# HELP apiserver_request_terminations_total [ALPHA] Number of requests which apiserver terminated in self-defense.\n# TYPE apiserver_request_terminations_total counter\n");
        let labels = |key: &Key| {
            let Key { verb, group, version, resource, subresource, scope, .. } = key;
            format!(
                "group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
            )
        };
        let snapshot = |counter: &Mutex<BTreeMap<Key, u64>>| {
            counter.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        for (key, count) in snapshot(&self.terminations) {
            let _ = writeln!(
                out,
                "apiserver_request_terminations_total{{code=\"{}\",component=\"apiserver\",{}}} {count}",
                key.code,
                labels(&key)
            );
        }
        out.push_str("# HELP apiserver_request_aborts_total [ALPHA] Number of requests which apiserver aborted possibly due to a timeout, for each group, version, verb, resource, subresource and scope\n# TYPE apiserver_request_aborts_total counter\n");
        for (key, count) in snapshot(&self.aborts) {
            let _ = writeln!(out, "apiserver_request_aborts_total{{{}}} {count}", labels(&key));
        }
    }

    /// Writes the metrics of requests in flight, durations and CPU time.
    fn render_requests(&self, out: &mut String) {
        out.push_str("# HELP apiserver_current_inflight_requests [STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second.\n# TYPE apiserver_current_inflight_requests gauge\n");
        for (gauge, kind) in self.inflight.iter().zip(["readOnly", "mutating"]) {
            let requests = gauge.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "apiserver_current_inflight_requests{{request_kind=\"{kind}\"}} {requests}"
            );
        }
        out.push_str("# HELP apiserver_request_duration_seconds [STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.\n# TYPE apiserver_request_duration_seconds histogram\n");
        const NAME: &str = "apiserver_request_duration_seconds";
        for (verb, histogram) in
            self.durations.lock().unwrap_or_else(PoisonError::into_inner).iter()
        {
            for (bucket, bound) in histogram.buckets.iter().zip(DURATION_BOUNDS) {
                let _ = writeln!(
                    out,
                    "{NAME}_bucket{{component=\"apiserver\",verb=\"{verb}\",le=\"{bound}\"}} {bucket}"
                );
            }
            let Histogram { count, sum, .. } = histogram;
            let _ = writeln!(
                out,
                "{NAME}_bucket{{component=\"apiserver\",verb=\"{verb}\",le=\"+Inf\"}} {count}"
            );
            let _ = writeln!(out, "{NAME}_sum{{component=\"apiserver\",verb=\"{verb}\"}} {sum}");
            let _ =
                writeln!(out, "{NAME}_count{{component=\"apiserver\",verb=\"{verb}\"}} {count}");
        }
        // Dashboards of upstream's metrics read these families, although this server has no etcd and no work queue.
        out.push_str("# HELP etcd_request_duration_seconds [ALPHA] Etcd request latency in seconds for each operation and object type.\n# TYPE etcd_request_duration_seconds histogram\n# HELP workqueue_depth [BETA] Current depth of workqueue\n# TYPE workqueue_depth gauge\n");
        if let Some(seconds) = cpu_seconds() {
            out.push_str("# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n# TYPE process_cpu_seconds_total counter\n");
            let _ = writeln!(out, "process_cpu_seconds_total {seconds}");
        }
    }
}

/// Returns the CPU time of this process in seconds, or `None` without Linux's `/proc`. Fields 14 and 15 of its stat
/// contain the user and system time in hundredths of a second.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Field 2, the program's name in parentheses, may contain spaces. The rest begins with field 3.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks =
        fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<f64>().ok());
    Some((ticks.next()?? + ticks.next()??) / 100.0)
}
