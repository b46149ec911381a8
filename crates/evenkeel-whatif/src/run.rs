//! Runs a cluster in virtual time.

use crate::{
    Cluster,
    actions::Actor,
    change::{NoSuchNode, Scenario},
    cluster::{nodes_in, text},
    format::counted,
    kubelets::Kubelets,
    observe::{Recorded, Recorder, full_name, node_record, pod_record},
    recording::{self, IDLE_PERIOD, Recording},
    server_thread::{self, ServerHandle, ServerTime},
    steering::{Steered, steer},
    wire::{PodMetrics, Wire},
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
use evenkeel_nodes::{Delays, NodeOptions, NodesOptions};
use evenkeel_plane::{Plane, PlaneOptions};
use evenkeel_runtime::clock::Clock;
use serde_json::Value;
use std::{collections::BTreeMap, io, net::Ipv4Addr, sync::mpsc, time::Duration};

/// Maximum time for a cluster to settle before the change.
const MAX_SETTLING: Duration = Duration::from_mins(30);
/// Interval at which to check whether the cluster has settled.
const SETTLING_CHECK: Duration = Duration::from_secs(10);
/// Factor by which the node monitor is slower if no node becomes ready or not ready by itself.
const SLOW_MONITOR: u32 = 60;
/// Maximum factor by which heartbeats are slower. It leads to periods of years.
const MAX_SLOWDOWN: u64 = 10_000_000;
/// Number of progress reports in a run.
const PROGRESS_STEPS: u32 = 1000;
/// First address of pods, of the range that RFC 6598 reserves for carriers.
const FIRST_POD_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);

/// Controller that a simulation leaves out if the usage of all pods is unknown.
const AUTOSCALER: &str = "horizontal-pod-autoscaler-controller";

/// Controllers that a simulation leaves out: the controllers of credentials, because a copy has no credentials, and the
/// controller that only warns of conflicting SELinux labels.
const LEFT_OUT_CONTROLLERS: [&str; 14] = [
    "bootstrap-signer-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
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

/// Runs a cluster in virtual time: the cluster settles, then the change is made. Returns the recording from the change on.
/// Equal arguments have equal results.
///
/// # Errors
/// Fails if the cluster cannot be loaded, has no nodes, or lacks nodes that the change names.
///
/// # Panics
/// Panics if it is called within a runtime.
pub fn simulate(cluster: &Cluster, scenario: &Scenario) -> Result<Recording, SimulateError> {
    simulate_with_progress(cluster, scenario, |_| {})
}

/// Like [`simulate`], and calls `progress` a thousand times during the run.
///
/// # Errors
/// Fails as [`simulate`] does.
///
/// # Panics
/// Panics if it is called within a runtime.
pub fn simulate_with_progress(
    cluster: &Cluster,
    scenario: &Scenario,
    progress: impl Fn(Progress),
) -> Result<Recording, SimulateError> {
    let nodes = checked_nodes(cluster, scenario)?;
    let Steered { start, objects, apply, has_behaviors, readiness_changes, autoscales, remarks } =
        steer(cluster, scenario);
    let scenario = &Scenario { apply, ..scenario.clone() };
    let speed = Speed::of(readiness_changes, scenario.duration);
    let time = ServerTime::starting_at(start);
    std::thread::scope(|scope| {
        progress(Progress::Loading);
        let (server, thread) = server_thread::connection();
        let (loaded, unknown) = mpsc::channel();
        let server_time = &time;
        let serve = async move {
            let server = start_server(cluster, server_time, scenario.seed).await?;
            let unknown = server.load(objects).await?;
            // The other thread waits for it.
            drop(loaded.send(unknown));
            Ok::<_, SimulateError>(server)
        };
        let named = std::thread::Builder::new().name("api-server".to_owned());
        let thread = named.spawn_scoped(scope, || thread.run(server_time, serve))?;
        let recording = unknown.recv().ok().map(|unknown| {
            let runtime = server.runtime()?;
            let remarks = remarks.into_iter().chain(unknown_types(&unknown)).collect();
            let components =
                Components { start, nodes: &nodes, scenario, speed, has_behaviors, autoscales };
            let recording = runtime.block_on(components.run(&progress, server))?;
            Ok(Recording { remarks, ..recording })
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

/// Components around the server.
struct Components<'a> {
    /// Time at which they start.
    start: Timestamp,
    nodes: &'a [Node],
    scenario: &'a Scenario,
    speed: Speed,
    has_behaviors: bool,
    autoscales: bool,
}

impl Components<'_> {
    /// Runs the components until the end of the scenario.
    async fn run(
        &self,
        progress: &impl Fn(Progress),
        server: ServerHandle,
    ) -> Result<Recording, SimulateError> {
        let scenario = self.scenario;
        let clock = Clock::seeded(self.start, scenario.seed);
        let recorder = Recorder::new(&clock);
        let kubelets = Kubelets::new(&clock);
        kubelets.add(self.nodes.iter().map(|node| node.meta.name.to_string()));
        let metrics = PodMetrics::default();
        let wire = Wire::client(server.clone(), &clock, recorder.clone(), metrics.clone());
        let plane = Plane::start(&wire, &clock, self.plane_options(&kubelets))?;
        kubelets.follow(plane.node_faults());
        if let Some(usage) = plane.usage().filter(|_| self.autoscales) {
            metrics.serve(usage);
        }
        recorder.subscribe(plane.caches());
        let added = (self.node_options(), &kubelets);
        let actor = Actor::new(&wire, &clock, plane.caches(), &recorder, added);
        let simulated = async {
            plane.synced().await;
            let settling = settle(&recorder, &clock, progress).await;
            let start = recorder.begin();
            let before = snapshot(&plane, start);
            let end = clock.instant() + scenario.duration;
            // A change that has not ended by then, such as a drain that a budget blocks, stays incomplete.
            let change = tokio::time::timeout_at(end, actor.change(scenario));
            let run = async {
                let _ = change.await;
                tokio::time::sleep_until(end).await;
            };
            report_progress(run, &clock, scenario.duration / PROGRESS_STEPS, progress).await;
            Recording { duration: scenario.duration, settling, ..before }
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

    /// Returns the options of simulated nodes, without the nodes.
    fn node_options(&self) -> NodesOptions {
        let defaults = NodesOptions::default();
        NodesOptions {
            nodes: Vec::new(),
            delays: Delays { job: Some(self.scenario.job_duration), ..Delays::default() },
            lease_renewal: defaults.lease_renewal * self.speed.heartbeats,
            lease_duration: defaults.lease_duration * self.speed.heartbeats,
            // Reports of an unchanged status are unnecessary: renewals of the Lease are enough.
            status_report: Duration::MAX,
            first_pod_ip: FIRST_POD_ADDRESS,
            interprets_commands: false,
            behaviors: self.has_behaviors,
            ..defaults
        }
    }

    /// Returns the options of controllers, scheduler and nodes.
    fn plane_options(&self, kubelets: &Kubelets) -> PlaneOptions {
        let mut controller_options = Options::default();
        controller_options.binder.host_path_files = false;
        controller_options.heartbeats = kubelets.heartbeats();
        let lifecycle = &mut controller_options.nodelifecycle;
        lifecycle.monitor_period *= self.speed.monitor;
        lifecycle.monitor_grace_period *= self.speed.grace;
        lifecycle.startup_grace_period *= self.speed.monitor;
        let mut controllers = descriptors();
        controllers.retain(|controller: &Descriptor| {
            !LEFT_OUT_CONTROLLERS.contains(&controller.name)
                && (self.autoscales || controller.name != AUTOSCALER)
        });
        let mut scheduler = self.scenario.scheduler.clone();
        scheduler.seed = self.scenario.seed;
        let nodes = self.nodes.iter().map(NodeOptions::of_existing).collect();
        PlaneOptions {
            controllers,
            controller_options,
            gates: Gates::default(),
            scheduler: Some(scheduler),
            nodes: NodesOptions { nodes, ..self.node_options() },
            cloud: None,
        }
    }
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
        // No component reads managed fields.
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
    /// Factor for renewals of Leases. The monitor knows which kubelets are alive, so one renewal at the start is enough: a
    /// thousand nodes would need 8,640,000 renewals a day.
    heartbeats: u32,
    /// Factor for the grace period of a node that the monitor does not know to be alive.
    grace: u32,
    /// Factor for the other periods of the monitor.
    monitor: u32,
}

impl Speed {
    /// Returns the factors for a run of this length. If no node becomes ready or not ready by itself, the monitor finds no
    /// changes.
    fn of(readiness_changes: bool, duration: Duration) -> Self {
        let longest = duration.saturating_add(MAX_SETTLING).as_secs();
        let factor = longest / NodesOptions::default().lease_renewal.as_secs().max(1) + 1;
        let factor = factor.clamp(u64::from(SLOW_MONITOR), MAX_SLOWDOWN);
        let heartbeats = u32::try_from(factor).unwrap_or(SLOW_MONITOR);
        let (grace, monitor) = if readiness_changes { (1, 1) } else { (heartbeats, SLOW_MONITOR) };
        Self { heartbeats, grace, monitor }
    }
}

/// Waits until the cluster has settled, up to a maximum. Returns the duration of the wait.
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
fn unknown_types(unknown: &[Value]) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for object in unknown {
        let kind = format!("{} {}", text(object, "/apiVersion"), text(object, "/kind"));
        *counts.entry(kind).or_default() += 1;
    }
    let remark = |(kind, count)| {
        let were = if count == 1 { "was" } else { "were" };
        let objects = counted(count, "object");
        format!("{objects} of {kind} {were} left out: the type is unknown")
    };
    counts.into_iter().map(remark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn remarks_count_the_objects_of_each_type() {
        let object = |kind: &str| json!({"apiVersion": "example.com/v1", "kind": kind});
        let remarks = unknown_types(&[object("Gadget"), object("Widget"), object("Gadget")]);
        let expected = [
            "2 objects of example.com/v1 Gadget were left out: the type is unknown",
            "1 object of example.com/v1 Widget was left out: the type is unknown",
        ];
        assert_eq!(remarks, expected);
    }

    #[test]
    fn the_monitor_is_slow_if_it_would_find_nothing() {
        let day = Duration::from_hours(24);
        let slow = Speed::of(false, day);
        assert_eq!((slow.monitor, slow.grace), (60, slow.heartbeats));
        let renewal = NodesOptions::default().lease_renewal * slow.heartbeats;
        assert!(renewal > day + MAX_SETTLING, "{renewal:?}");
        let full = Speed::of(true, day);
        assert_eq!((full.monitor, full.grace, full.heartbeats), (1, 1, slow.heartbeats));
    }
}
