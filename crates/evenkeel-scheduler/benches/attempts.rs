//! How much CPU an attempt takes, without an API server: workloads after upstream's `scheduler_perf`, on 5,000 nodes.
//!
//! `cargo bench -p evenkeel-scheduler [-- WORD…]` runs the workloads whose names contain one of the words. Measured is what the
//! scheduler does for a pod between the cache's telling of it and its binding: working out what it asks for, the attempt, and
//! counting it on its node.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures reads the clock and prints, and may end at once"
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

/// What is scheduled, and onto what.
struct Workload {
    name: &'static str,
    /// Zones that the nodes are dealt to in turn.
    zones: &'static [&'static str],
    /// Pods that are there before, with their namespace.
    before: (usize, fn() -> Value),
    /// Pods that are measured.
    measured: (usize, fn() -> Value),
    /// Between pods, others end, and nodes come, change and go.
    churn: bool,
}

const ONE: &[&str] = &["zone1"];
const MOON: &[&str] = &["moon-1", "moon-2", "moon-3"];

const WORKLOADS: &[Workload] = &[
    Workload::new("basic", &[], (1000, plain), (10_000, plain)),
    Workload::new("basic, zones", MOON, (1000, plain), (10_000, plain)),
    Workload::new("node affinity", ONE, (5000, node_affinity), (5000, node_affinity)),
    Workload::new("topology spreading", MOON, (5000, plain), (5000, spread)),
    Workload::new("preferred topology spreading", MOON, (5000, plain), (5000, soft_spread)),
    Workload::new("pod affinity", ONE, (5000, affinity), (5000, affinity)),
    Workload::new("pod anti-affinity", &[], (1000, anti_affinity), (2000, anti_affinity)),
    Workload::new("matching anti-affinity", &[], (1000, anti_affinity), (5000, green)),
    Workload::new("preferred affinity", &[], (5000, soft_affinity), (5000, soft_affinity)),
    Workload::new("preferred anti-affinity", &[], (5000, soft_anti), (5000, soft_anti)),
    Workload::new("unschedulable", &[], (1000, plain), (200, huge)),
    Workload { churn: true, ..Workload::new("mixed churn", MOON, (5000, plain), (5000, mixed)) },
];

impl Workload {
    const fn new(
        name: &'static str,
        zones: &'static [&'static str],
        before: (usize, fn() -> Value),
        measured: (usize, fn() -> Value),
    ) -> Self {
        Self { name, zones, before, measured, churn: false }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(&**word));
    println!(
        "{:<30} {:>6} {:>8} {:>9} {:>8} {:>8} {:>9} {:>8}",
        "workload", "pods", "µs CPU", "pods/s", "p50 µs", "p99 µs", "table MiB", "unplaced"
    );
    for workload in WORKLOADS.iter().filter(|workload| wanted(workload.name)) {
        run(workload);
    }
}

fn run(workload: &Workload) {
    let nodes: Vec<Arc<Node>> =
        (0..N_NODES).map(|n| decode(&node(&format!("node-{n}"), zone(workload, n)))).collect();
    let pods = |prefix: &str, (count, pod): (usize, fn() -> Value)| -> Vec<Arc<Pod>> {
        (0..count).map(|n| decode(&named(pod(), prefix, n))).collect()
    };
    let (before, measured) = (pods("before", workload.before), pods("pod", workload.measured));
    let memory = resident();
    let mut cluster = Cluster::new(&nodes);
    for pod in before {
        cluster.schedule(pod);
    }
    cluster.unplaced = 0;
    let mut took = Vec::with_capacity(measured.len());
    let (cpu, began) = (cpu_time(), Instant::now());
    for (n, pod) in measured.into_iter().enumerate() {
        let began = Instant::now();
        cluster.schedule(pod);
        took.push(began.elapsed());
        if workload.churn {
            cluster.churn(n, &nodes);
        }
    }
    let (cpu, wall) = (cpu_time() - cpu, began.elapsed());
    took.sort_unstable();
    let micros = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "{:<30} {:>6} {:>8.1} {:>9.0} {:>8.1} {:>8.1} {:>9.1} {:>8}",
        workload.name,
        took.len(),
        cpu.as_secs_f64() * 1e6 / took.len() as f64,
        took.len() as f64 / wall.as_secs_f64(),
        micros(0.5),
        micros(0.99),
        resident().saturating_sub(memory) as f64 / (1 << 20) as f64,
        cluster.unplaced,
    );
}

/// The table, the profile, and the pods in the order in which they were placed.
struct Cluster {
    profile: Profile,
    table: NodeTable,
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

    /// A pod ends with every second one that comes; a node goes, comes or changes with every twentieth.
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
    let room = json!({ "cpu": "4", "memory": "32Gi", "pods": "110" });
    let mut labels = json!({ "kubernetes.io/hostname": name });
    if let Some(zone) = zone {
        labels["topology.kubernetes.io/zone"] = json!(zone);
    }
    json!({
        "metadata": { "name": name, "uid": name, "labels": labels },
        "spec": {},
        "status": { "capacity": room, "allocatable": room },
    })
}

fn plain() -> Value {
    requesting("100m", "500Mi")
}

fn huge() -> Value {
    requesting("5", "500Mi")
}

fn requesting(cpu: &str, memory: &str) -> Value {
    let resources = json!({ "requests": { "cpu": cpu, "memory": memory } });
    json!({
        "metadata": { "namespace": "sched-1" },
        "spec": { "containers": [{
            "name": "pause", "image": "registry.k8s.io/pause:3.10.2", "resources": resources,
            "ports": [{ "containerPort": 80 }],
        }] },
    })
}

fn named(mut pod: Value, prefix: &str, n: usize) -> Value {
    pod["metadata"]["name"] = json!(format!("{prefix}-{n}"));
    pod["metadata"]["uid"] = json!(format!("2d4f6a80-0000-4000-8000-{prefix:0>6.6}{n:06}"));
    pod
}

fn colored(color: &str, affinity: &Value) -> Value {
    let mut pod = plain();
    pod["metadata"]["labels"] = json!({ "color": color });
    pod["spec"]["affinity"] = affinity.clone();
    pod
}

fn node_affinity() -> Value {
    let zones = json!([{ "matchExpressions": [{
        "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone1", "zone2"],
    }] }]);
    colored(
        "none",
        &json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": zones },
    } }),
    )
}

fn spreading(action: &str) -> Value {
    let mut pod = colored("blue", &Value::Null);
    pod["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": action,
        "labelSelector": { "matchLabels": { "color": "blue" } },
    }]);
    pod
}

fn spread() -> Value {
    spreading("DoNotSchedule")
}

fn soft_spread() -> Value {
    spreading("ScheduleAnyway")
}

/// Pods of the color in both namespaces.
fn term(color: &str, key: &str) -> Value {
    json!({
        "labelSelector": { "matchLabels": { "color": color } },
        "topologyKey": key, "namespaces": ["sched-1", "sched-0"],
    })
}

fn affinity() -> Value {
    let near = term("blue", "topology.kubernetes.io/zone");
    colored(
        "blue",
        &json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [near] } }),
    )
}

fn anti_affinity() -> Value {
    let away = term("green", "kubernetes.io/hostname");
    colored(
        "green",
        &json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [away] } }),
    )
}

fn green() -> Value {
    colored("green", &Value::Null)
}

fn preferring(color: &str, kind: &str) -> Value {
    let term = json!({ "weight": 1, "podAffinityTerm": term(color, "kubernetes.io/hostname") });
    colored(color, &json!({ kind: { "preferredDuringSchedulingIgnoredDuringExecution": [term] } }))
}

fn soft_affinity() -> Value {
    preferring("red", "podAffinity")
}

fn soft_anti() -> Value {
    preferring("yellow", "podAntiAffinity")
}

/// Affinity, anti-affinity and spreading in one.
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

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = line.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Bytes of memory in use.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    kib * 1024
}
