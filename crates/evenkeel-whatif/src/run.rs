//! Runs a cluster in virtual time.

use crate::{
    Cluster,
    actions::Actor,
    change::{NoSuchNode, Scenario},
    cluster::nodes_in,
    observe::{Recorded, Recorder, full_name, node_record, pod_record},
    recording::{self, IDLE_PERIOD, Recording},
    server_thread::{self, ServerHandle, ServerTime},
    wire::Wire,
};
use evenkeel_api::{
    time::Timestamp,
    views::{Node, Pod, PodDisruptionBudget},
};
use evenkeel_apiserver::{BuildError, Server, UncheckedError};
use evenkeel_controllers::{
    needs::Gates,
    options::Options,
    wiring::descriptor::{Descriptor, StartError, descriptors},
};
use evenkeel_nodes::{Delays, NodeOptions, NodesOptions, SILENT, fault};
use evenkeel_plane::{Plane, PlaneOptions};
use evenkeel_runtime::clock::Clock;
use serde_json::Value;
use std::{collections::BTreeMap, io, net::Ipv4Addr, sync::mpsc, time::Duration};

/// Maximum time that a cluster has to settle before the change.
const MAX_SETTLING: Duration = Duration::from_mins(30);
/// Interval at which to check whether the cluster has settled.
const SETTLING_CHECK: Duration = Duration::from_secs(10);
/// Factor by which the node monitor is slower while no node is cut off.
const SLOW_MONITOR: u32 = 60;
/// Maximum factor by which heartbeats and their grace period are slower while no node is cut off: periods of years.
const MAX_SLOWDOWN: u64 = 10_000_000;
/// Number of parts of the run after which progress is reported.
const PROGRESS_STEPS: u32 = 1000;
/// First address of pods, of the range that RFC 6598 reserves for carriers.
const FIRST_POD_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);

/// Controllers that a simulation leaves out: those of credentials, which a copy lacks, the autoscaler, because the usage of
/// pods is unknown, and the one that only warns of conflicts between SELinux labels.
const LEFT_OUT_CONTROLLERS: [&str; 15] = [
    "bootstrap-signer-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "horizontal-pod-autoscaler-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "persistentvolume-attach-detach-controller",
    "podcertificaterequest-cleaner-controller",
    "root-ca-certificate-publisher-controller",
    "selinux-warning-controller",
    "serviceaccount-token-controller",
    "storage-version-migrator-controller",
    "storageversion-garbage-collector-controller",
    "token-cleaner-controller",
];

/// Failure of a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A thread of the simulation or its runtime cannot start.
    #[error("the runtime cannot start: {0}")]
    Runtime(#[from] io::Error),
    /// The API server cannot start.
    #[error("the API server cannot start: {0}")]
    Server(#[from] BuildError),
    /// The objects cannot be stored.
    #[error("the cluster cannot be loaded: {0}")]
    Load(#[from] UncheckedError),
    /// The thread of the API server ended before the simulation.
    #[error("the API server of the simulation stopped")]
    Stopped,
    /// A controller cannot start.
    #[error(transparent)]
    Controller(#[from] StartError),
    /// The change names nodes that the cluster lacks.
    #[error(transparent)]
    NoSuchNode(#[from] NoSuchNode),
    /// The cluster has no node.
    #[error("the cluster has no nodes: add the output of `kubectl get nodes -o yaml`")]
    NoNodes,
}

/// How far a simulation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The objects are loaded, and the caches are filled.
    Loading,
    /// The unchanged cluster has run for this virtual time.
    Settling(Duration),
    /// This virtual time has passed since the change.
    Changed(Duration),
}

/// Runs a cluster in virtual time: it settles, then the change is made. Returns what happened from the change on. Equal
/// arguments have equal results.
///
/// # Errors
/// The cluster cannot be loaded, has no nodes, or lacks nodes that the change names.
///
/// # Panics
/// If it is called within a runtime.
pub fn simulate(cluster: &Cluster, scenario: &Scenario) -> Result<Recording, SimulateError> {
    simulate_with_progress(cluster, scenario, |_| {})
}

/// Like [`simulate`], and calls `progress` a thousand times in the course of the run.
///
/// # Errors
/// As of [`simulate`].
///
/// # Panics
/// If it is called within a runtime.
pub fn simulate_with_progress(
    cluster: &Cluster,
    scenario: &Scenario,
    progress: impl Fn(Progress),
) -> Result<Recording, SimulateError> {
    let nodes = checked_nodes(cluster, scenario)?;
    let time = ServerTime::starting_at(cluster.time());
    std::thread::scope(|scope| {
        progress(Progress::Loading);
        let (server, thread) = server_thread::connection();
        let (loaded, unknown) = mpsc::channel();
        let server_time = &time;
        let start = async move {
            let server = start_server(cluster, server_time, scenario.seed).await?;
            let unknown = server.load(cluster.prepared()).await?;
            // The other thread waits for it.
            drop(loaded.send(unknown));
            Ok::<_, SimulateError>(server)
        };
        let named = std::thread::Builder::new().name("api-server".to_owned());
        let thread = named.spawn_scoped(scope, || thread.run(server_time, start))?;
        let recording = unknown.recv().ok().map(|unknown| {
            let runtime = server.runtime()?;
            runtime.block_on(run(cluster, &nodes, scenario, &progress, server, &unknown))
        });
        let ended = thread.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        recording.unwrap_or(Err(SimulateError::Stopped))
    })
}

/// Returns the nodes of the cluster, if the change can be made in it.
fn checked_nodes(cluster: &Cluster, scenario: &Scenario) -> Result<Vec<Node>, SimulateError> {
    let nodes = nodes_in(cluster.objects());
    if nodes.is_empty() {
        return Err(SimulateError::NoNodes);
    }
    scenario.check(&nodes)?;
    Ok(nodes)
}

/// Runs the components around the server. `unknown` are the objects that it does not hold.
async fn run(
    cluster: &Cluster,
    nodes: &[Node],
    scenario: &Scenario,
    progress: &impl Fn(Progress),
    server: ServerHandle,
    unknown: &[Value],
) -> Result<Recording, SimulateError> {
    let speed = Speed::of(cluster, scenario);
    let nodes = nodes.iter().map(NodeOptions::of_existing).collect();
    let clock = Clock::seeded(cluster.time(), scenario.seed);
    let recorder = Recorder::new(&clock);
    let nodes = NodesOptions { nodes, ..node_options(scenario, speed) };
    let wire = Wire::client(server.clone(), &clock, recorder.clone());
    let options = plane_options(scenario, nodes, speed);
    let plane = Plane::start(&wire, &clock, options)?;
    recorder.subscribe(plane.caches());
    let actor = Actor::new(&wire, &clock, plane.caches(), &recorder, node_options(scenario, speed));
    let simulated = async {
        plane.synced().await;
        let settling = settle(&recorder, &clock, progress).await;
        let start = recorder.begin();
        let before = snapshot(&plane, start);
        let end = clock.instant() + scenario.duration;
        // A change that has not ended by then, such as a drain that a budget blocks, stays as it is.
        let change = tokio::time::timeout_at(end, actor.change(scenario));
        let run = async {
            let _ = change.await;
            tokio::time::sleep_until(end).await;
        };
        report_progress(run, &clock, scenario.duration / PROGRESS_STEPS, progress).await;
        Recording { duration: scenario.duration, settling, remarks: remarks(unknown), ..before }
    };
    let recording = tokio::select! {
        biased;
        recording = simulated => recording,
        () = server.tick(&clock) => unreachable!("it does not end"),
    };
    let Recorded { mut happened, unrecorded, writes } = recorder.take();
    recording::sort(&mut happened);
    Ok(Recording { happened, unrecorded, writes, ..recording })
}

/// Builds an API server in memory. It checks no permissions and limits no requests, because only the cluster's own
/// components use it.
async fn start_server(
    cluster: &Cluster,
    time: &ServerTime,
    seed: u64,
) -> Result<Server, BuildError> {
    let mut builder = Server::builder()
        .clock(time.clock())
        .seed(seed)
        .authorization_mode("AlwaysAllow")
        .priority_and_fairness(false)
        // Nobody reads who wrote which field.
        .tracks_field_managers(false)
        .max_requests_in_flight(0, 0);
    if let Some(ranges) = cluster.service_ranges() {
        builder = builder.service_cluster_ip_range(ranges);
    }
    builder.build().await
}

/// Waits for a future, and reports the virtual time that has passed.
async fn report_progress(
    run: impl Future<Output = ()>,
    clock: &Clock,
    step: Duration,
    progress: &impl Fn(Progress),
) {
    let start = clock.instant();
    let report = async {
        loop {
            clock.sleep(step.max(Duration::from_secs(1))).await;
            progress(Progress::Changed(clock.instant().saturating_duration_since(start)));
        }
    };
    tokio::select! {
        biased;
        () = run => {}
        () = report => {}
    }
}

/// Factors by which the heartbeats of nodes and their monitor are slower than in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Speed {
    /// Of the heartbeats, and of the time after which the node monitor misses them.
    heartbeats: u32,
    /// Of the other periods of the node monitor.
    monitor: u32,
}

impl Speed {
    /// Returns the factors for a scenario. If no node goes silent, a renewal tells nobody anything: one at the start is
    /// enough for the run. A thousand nodes would need 8,640,000 renewals a day.
    fn of(cluster: &Cluster, scenario: &Scenario) -> Self {
        if scenario.outage.is_some() || goes_silent(cluster, scenario) {
            return Self { heartbeats: 1, monitor: 1 };
        }
        let longest = scenario.duration.saturating_add(MAX_SETTLING).as_secs();
        let factor = longest / NodesOptions::default().lease_renewal.as_secs().max(1) + 1;
        let factor = factor.clamp(u64::from(SLOW_MONITOR), MAX_SLOWDOWN);
        let heartbeats = u32::try_from(factor).unwrap_or(SLOW_MONITOR);
        Self { heartbeats, monitor: SLOW_MONITOR }
    }
}

/// Reports whether a node is silent that the copy shows as ready, or one that the change applies, or whether a Behavior makes
/// nodes silent from time to time.
fn goes_silent(cluster: &Cluster, scenario: &Scenario) -> bool {
    let time = cluster.time();
    let is_silent = |node: &Node| fault(&node.meta.annotations, SILENT, time).is_some();
    let is_ready = |node: &Node| {
        let mut conditions = node.status.conditions.iter();
        conditions.any(|found| &*found.type_ == "Ready" && &*found.status == "True")
    };
    let objects = cluster.objects().iter().chain(&scenario.apply);
    let behaviors = objects.filter(|object| object["kind"] == "Behavior");
    let faults = evenkeel_nodes::NodeFaults::of_objects(behaviors);
    let [known, applied] = [cluster.objects(), scenario.apply.as_slice()].map(nodes_in);
    known.iter().any(|node| is_silent(node) && is_ready(node) || faults.may_silence(node))
        || applied.iter().any(|node| is_silent(node) || faults.may_silence(node))
}

/// Returns the options of simulated nodes, without the nodes.
fn node_options(scenario: &Scenario, speed: Speed) -> NodesOptions {
    let defaults = NodesOptions::default();
    NodesOptions {
        nodes: Vec::new(),
        delays: Delays { job: Some(scenario.job_duration), ..Delays::default() },
        lease_renewal: defaults.lease_renewal * speed.heartbeats,
        lease_duration: defaults.lease_duration * speed.heartbeats,
        // Reports of an unchanged status tell nobody anything: renewals of the Lease are enough.
        status_report: Duration::MAX,
        first_pod_ip: FIRST_POD_ADDRESS,
        interprets_commands: false,
        ..defaults
    }
}

/// Returns the options of controllers, scheduler and nodes.
fn plane_options(scenario: &Scenario, nodes: NodesOptions, speed: Speed) -> PlaneOptions {
    let mut controller_options = Options::default();
    controller_options.binder.host_path_files = false;
    let lifecycle = &mut controller_options.nodelifecycle;
    lifecycle.monitor_period *= speed.monitor;
    lifecycle.monitor_grace_period *= speed.heartbeats;
    lifecycle.startup_grace_period *= speed.monitor;
    let mut controllers = descriptors();
    controllers.retain(|controller: &Descriptor| !LEFT_OUT_CONTROLLERS.contains(&controller.name));
    let mut scheduler = scenario.scheduler.clone();
    scheduler.seed = scenario.seed;
    PlaneOptions {
        controllers,
        controller_options,
        gates: Gates::default(),
        scheduler: Some(scheduler),
        nodes,
        cloud: None,
    }
}

/// Waits until nothing happens any more, but not forever. Returns how long that took.
async fn settle(recorder: &Recorder, clock: &Clock, progress: &impl Fn(Progress)) -> Duration {
    let start = clock.now();
    loop {
        clock.sleep(SETTLING_CHECK).await;
        let passed = clock.now().duration_since(start).unsigned_abs();
        progress(Progress::Settling(passed));
        if recorder.quiet_since(start) >= IDLE_PERIOD || passed >= MAX_SETTLING {
            return passed;
        }
    }
}

/// Returns a recording that begins with the current objects.
fn snapshot(plane: &Plane, start: Timestamp) -> Recording {
    let caches = plane.caches();
    let nodes = caches.of::<Node>().list();
    let pods = caches.of::<Pod>().list();
    let budgets = caches.of::<PodDisruptionBudget>().list();
    let by_name =
        |budget: &PodDisruptionBudget| (full_name(&budget.meta), budget.status.disruptions_allowed);
    Recording {
        start,
        duration: Duration::ZERO,
        settling: Duration::ZERO,
        nodes: nodes.iter().map(|node| (full_name(&node.meta), node_record(node))).collect(),
        pods: pods.iter().map(|pod| (full_name(&pod.meta), pod_record(pod))).collect(),
        budgets: budgets.iter().map(|budget| by_name(budget)).collect(),
        happened: Vec::new(),
        unrecorded: 0,
        writes: BTreeMap::new(),
        remarks: Vec::new(),
    }
}

/// Returns remarks on objects that were not loaded, by type.
fn remarks(unknown: &[Value]) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for object in unknown {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        *counts.entry(format!("{} {}", text("apiVersion"), text("kind"))).or_default() += 1;
    }
    let remark =
        |(kind, count)| format!("{count} objects of {kind} were left out: the type is unknown");
    counts.into_iter().map(remark).collect()
}
