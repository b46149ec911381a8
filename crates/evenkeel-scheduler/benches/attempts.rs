//! Measures the CPU time of scheduling attempts without an API server. The workloads are similar to those of upstream's
//! `scheduler_perf`, on 5,000 nodes.
//!
//! `cargo bench -p evenkeel-scheduler [-- WORD…]` runs the workloads whose names contain one of the words. The
//! measurement of a pod starts when the cache delivers the pod and ends before the binding. It includes the computation
//! of the pod's requests, the attempt, and the update of the node's usage.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a benchmark reads the clock, prints its results, and may panic"
)]

use evenkeel_api::{
    Encoding,
    views::{Node, Pod},
};
use evenkeel_scheduler::{
    framework::{CycleState, Profile},
    nodes::NodeTable,
    pod::PodInfo,
    schedule::{Nominator, View, schedule},
};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

const N_NODES: usize = 5000;

/// Nodes and pods of one measurement.
struct Workload {
    name: &'static str,
    /// Zones of the nodes. Node `n` is in zone `n` modulo their number.
    zones: &'static [&'static str],
    /// Pods that are scheduled before the measurement.
    existing: PodBatch,
    /// Pods whose attempts are measured.
    measured: PodBatch,
    /// Whether pods end and nodes change between the measured attempts.
    has_churn: bool,
}

/// Pods that differ only by name.
#[derive(Clone, Copy)]
struct PodBatch {
    count: usize,
    build_pod: fn() -> Value,
}

const ONE_ZONE: &[&str] = &["zone1"];
const THREE_ZONES: &[&str] = &["moon-1", "moon-2", "moon-3"];

const WORKLOADS: &[Workload] = &[
    Workload::new("basic", &[], (1000, plain), (10_000, plain)),
    Workload::new("basic, zones", THREE_ZONES, (1000, plain), (10_000, plain)),
    Workload::new("node affinity", ONE_ZONE, (5000, node_affinity), (5000, node_affinity)),
    Workload::new("topology spreading", THREE_ZONES, (5000, plain), (5000, spread)),
    Workload::new("preferred topology spreading", THREE_ZONES, (5000, plain), (5000, soft_spread)),
    Workload::new("pod affinity", ONE_ZONE, (5000, affinity), (5000, affinity)),
    Workload::new("pod anti-affinity", &[], (1000, anti_affinity), (2000, anti_affinity)),
    Workload::new("matching anti-affinity", &[], (1000, anti_affinity), (5000, green)),
    Workload::new("preferred affinity", &[], (5000, soft_affinity), (5000, soft_affinity)),
    Workload::new(
        "preferred anti-affinity",
        &[],
        (5000, soft_anti_affinity),
        (5000, soft_anti_affinity),
    ),
    Workload::new("unschedulable", &[], (1000, plain), (200, huge)),
    Workload {
        has_churn: true,
        ..Workload::new("mixed churn", THREE_ZONES, (5000, plain), (5000, mixed))
    },
];

impl Workload {
    const fn new(
        name: &'static str,
        zones: &'static [&'static str],
        (n_existing, existing): (usize, fn() -> Value),
        (n_measured, measured): (usize, fn() -> Value),
    ) -> Self {
        Self {
            name,
            zones,
            existing: PodBatch { count: n_existing, build_pod: existing },
            measured: PodBatch { count: n_measured, build_pod: measured },
            has_churn: false,
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_selected =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(&**word));
    println!(
        "{:<30} {:>6} {:>8} {:>9} {:>8} {:>8} {:>9} {:>8}",
        "workload", "pods", "µs CPU", "pods/s", "p50 µs", "p99 µs", "table MiB", "unplaced"
    );
    for workload in WORKLOADS.iter().filter(|workload| is_selected(workload.name)) {
        run(workload);
    }
}

fn run(workload: &Workload) {
    let nodes: Vec<Arc<Node>> =
        (0..N_NODES).map(|n| decode(&node(&format!("node-{n}"), zone(workload, n)))).collect();
    let build_pods = |prefix: &str, batch: PodBatch| -> Vec<Arc<Pod>> {
        (0..batch.count).map(|n| decode(&with_name((batch.build_pod)(), prefix, n))).collect()
    };
    let existing = build_pods("before", workload.existing);
    let measured = build_pods("pod", workload.measured);
    let memory_before = resident_bytes();
    let mut cluster = Cluster::new(&nodes);
    for pod in existing {
        cluster.schedule(pod);
    }
    cluster.unplaced = 0;
    let mut latencies = Vec::with_capacity(measured.len());
    let (cpu_before, start) = (cpu_time(), Instant::now());
    for (n, pod) in measured.into_iter().enumerate() {
        let attempt_start = Instant::now();
        cluster.schedule(pod);
        latencies.push(attempt_start.elapsed());
        if workload.has_churn {
            cluster.churn(n, &nodes);
        }
    }
    let (cpu, elapsed) = (cpu_time() - cpu_before, start.elapsed());
    latencies.sort_unstable();
    let micros_at = |quantile: f64| {
        let index = (latencies.len() - 1) as f64 * quantile;
        latencies[index as usize].as_secs_f64() * 1e6
    };
    println!(
        "{:<30} {:>6} {:>8.1} {:>9.0} {:>8.1} {:>8.1} {:>9.1} {:>8}",
        workload.name,
        latencies.len(),
        cpu.as_secs_f64() * 1e6 / latencies.len() as f64,
        latencies.len() as f64 / elapsed.as_secs_f64(),
        micros_at(0.5),
        micros_at(0.99),
        resident_bytes().saturating_sub(memory_before) as f64 / (1 << 20) as f64,
        cluster.unplaced,
    );
}

/// State of the scheduler.
struct Cluster {
    profile: Profile,
    table: NodeTable,
    /// Pods in the order in which they were placed.
    placed: VecDeque<Arc<Pod>>,
    start_node_index: usize,
    seed: u64,
    unplaced: usize,
}

impl Cluster {
    fn new(nodes: &[Arc<Node>]) -> Self {
        let mut table = NodeTable::default();
        for node in nodes {
            table.set_node(Arc::clone(node));
        }
        Self {
            profile: Profile::with_defaults("default-scheduler"),
            table,
            placed: VecDeque::new(),
            start_node_index: 0,
            seed: 0,
            unplaced: 0,
        }
    }

    fn schedule(&mut self, pod: Arc<Pod>) {
        self.seed += 1;
        let info = PodInfo::new(Arc::clone(&pod));
        let nominator = Nominator::default();
        let view = View {
            profile: &self.profile,
            nodes: &mut self.table,
            nominator: &nominator,
            start_node_index: self.start_node_index,
        };
        let outcome = schedule(view, &info, self.seed, &mut CycleState::default());
        self.start_node_index = outcome.next_start_node_index;
        match outcome.result {
            Ok(choice) => {
                self.table.place(info, &choice.suggested_host);
                self.placed.push_back(pod);
            }
            Err(_) => self.unplaced += 1,
        }
    }

    /// Removes the oldest pod after every second attempt, and removes, adds or updates a node after every twentieth.
    fn churn(&mut self, n: usize, nodes: &[Arc<Node>]) {
        if n.is_multiple_of(2)
            && let Some(pod) = self.placed.pop_front()
        {
            self.table.remove(&pod.meta.uid);
        }
        let node = &nodes[n * 7 % nodes.len()];
        match n % 60 {
            0 => self.table.remove_node(&node.meta.name),
            20 | 40 => drop(self.table.set_node(Arc::clone(node))),
            _ => {}
        }
    }
}

fn zone(workload: &Workload, n: usize) -> Option<&'static str> {
    (!workload.zones.is_empty()).then(|| workload.zones[n % workload.zones.len()])
}

fn node(name: &str, zone: Option<&str>) -> Value {
    let capacity = json!({ "cpu": "4", "memory": "32Gi", "pods": "110" });
    let mut labels = json!({ "kubernetes.io/hostname": name });
    if let Some(zone) = zone {
        labels["topology.kubernetes.io/zone"] = json!(zone);
    }
    json!({
        "metadata": { "name": name, "uid": name, "labels": labels },
        "spec": {},
        "status": { "capacity": capacity, "allocatable": capacity },
    })
}

fn plain() -> Value {
    pod_with_requests("100m", "500Mi")
}

fn huge() -> Value {
    pod_with_requests("5", "500Mi")
}

fn pod_with_requests(cpu: &str, memory: &str) -> Value {
    let resources = json!({ "requests": { "cpu": cpu, "memory": memory } });
    json!({
        "metadata": { "namespace": "sched-1" },
        "spec": { "containers": [{
            "name": "pause", "image": "registry.k8s.io/pause:3.10.2", "resources": resources,
            "ports": [{ "containerPort": 80 }],
        }] },
    })
}

fn with_name(mut pod: Value, prefix: &str, n: usize) -> Value {
    pod["metadata"]["name"] = json!(format!("{prefix}-{n}"));
    pod["metadata"]["uid"] = json!(format!("2d4f6a80-0000-4000-8000-{prefix:0>6.6}{n:06}"));
    pod
}

fn pod_with_color(color: &str, affinity: &Value) -> Value {
    let mut pod = plain();
    pod["metadata"]["labels"] = json!({ "color": color });
    pod["spec"]["affinity"] = affinity.clone();
    pod
}

fn node_affinity() -> Value {
    let zones = json!([{ "matchExpressions": [{
        "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone1", "zone2"],
    }] }]);
    pod_with_color(
        "none",
        &json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": zones },
    } }),
    )
}

fn pod_with_spread(when_unsatisfiable: &str) -> Value {
    let mut pod = pod_with_color("blue", &Value::Null);
    pod["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": when_unsatisfiable,
        "labelSelector": { "matchLabels": { "color": "blue" } },
    }]);
    pod
}

fn spread() -> Value {
    pod_with_spread("DoNotSchedule")
}

fn soft_spread() -> Value {
    pod_with_spread("ScheduleAnyway")
}

/// Returns an affinity term that selects pods of this color in both namespaces.
fn term(color: &str, topology_key: &str) -> Value {
    json!({
        "labelSelector": { "matchLabels": { "color": color } },
        "topologyKey": topology_key, "namespaces": ["sched-1", "sched-0"],
    })
}

fn affinity() -> Value {
    let term = term("blue", "topology.kubernetes.io/zone");
    pod_with_color(
        "blue",
        &json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } }),
    )
}

fn anti_affinity() -> Value {
    let term = term("green", "kubernetes.io/hostname");
    pod_with_color(
        "green",
        &json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } }),
    )
}

fn green() -> Value {
    pod_with_color("green", &Value::Null)
}

fn pod_with_preference(color: &str, kind: &str) -> Value {
    let term = json!({ "weight": 1, "podAffinityTerm": term(color, "kubernetes.io/hostname") });
    pod_with_color(
        color,
        &json!({ kind: { "preferredDuringSchedulingIgnoredDuringExecution": [term] } }),
    )
}

fn soft_affinity() -> Value {
    pod_with_preference("red", "podAffinity")
}

fn soft_anti_affinity() -> Value {
    pod_with_preference("yellow", "podAntiAffinity")
}

/// Returns a pod with affinity, anti-affinity and a spread constraint.
fn mixed() -> Value {
    let mut pod = spread();
    pod["spec"]["affinity"] = json!({
        "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 10, "podAffinityTerm": term("blue", "topology.kubernetes.io/zone") },
        ] },
        "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 5, "podAffinityTerm": term("blue", "kubernetes.io/hostname") },
        ] },
    });
    pod
}

fn decode<V: evenkeel_api::View>(object: &Value) -> Arc<V> {
    Arc::new(V::decode(object.to_string().as_bytes(), Encoding::Json).unwrap())
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = line.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Returns the resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    kib * 1024
}
