//! `evenkeel schedule --simulate`: prints the node of each pod, and why the other nodes are unsuitable, for a
//! cluster described in files. It also adds the scheduler's part to `evenkeel explain pod/NAME`.

use anyhow::{Context as _, Result, bail, ensure};
use evenkeel_api::views::Pod;
use evenkeel_explain::{LiveScheduler, Unsynced};
use evenkeel_kube_scheduler::Registry;
use evenkeel_runtime::clock::Clock;
use evenkeel_scheduler::{
    SchedulerOptions,
    explain::{Explained, Looker},
    simulate::{Dump, Workload},
};
use futures::future::BoxFuture;
use serde::Serialize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    io::Read as _,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// Timeout of the caches' sync with a live cluster.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of printed nodes for each kind of result.
const MAX_SHOWN_NODES: usize = 8;

/// Flags of `evenkeel schedule`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Only simulate. Required: this command never writes to a cluster.
    #[arg(long, required = true)]
    pub simulate: bool,

    /// Files from `kubectl get nodes,pods,… -o yaml` (or json), - for the standard input. Missing pods of
    /// workloads are added.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Only this pod or workload, as NAMESPACE/NAME. Default: all pods without a node.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub pod: Option<String>,

    /// Number of copies of each pod, to find how many fit.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub copies: usize,

    /// Configuration of the scheduler (KubeSchedulerConfiguration). Default: upstream's defaults.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Output: text, or json.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    pub output: String,
}

/// Nodes of a pod, or of the pods of a workload.
#[derive(Debug, Serialize)]
struct Placed {
    /// Kind of the object: `Pod`, or the workload's kind.
    kind: &'static str,
    /// Namespace and name of the pod or the workload.
    pod: String,
    /// Number of pods to schedule.
    wanted: usize,
    /// Number of pods that found a node.
    copies: usize,
    /// Chosen nodes, each with its number of pods, in the order of their first pods.
    nodes: Vec<String>,
    /// Explanation of the first pod without a node, or else of the first pod.
    explained: Explained,
}

/// Simulates the scheduling, and returns the output.
///
/// # Errors
/// Fails if a file cannot be read, or the pod does not exist.
pub fn simulate(args: &Args) -> BoxFuture<'_, Result<String>> {
    Box::pin(simulate_files(args))
}

async fn simulate_files(args: &Args) -> Result<String> {
    let mut dump = Dump::default();
    for path in &args.files {
        let text = read(path).with_context(|| path.display().to_string())?;
        dump.add(&text).with_context(|| path.display().to_string())?;
    }
    let mut options = SchedulerOptions::default();
    if let Some(path) = &args.config {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        options.profiles = evenkeel_kube_scheduler::profiles(&text, &Registry::in_tree())
            .with_context(|| path.display().to_string())?;
    }
    let workloads = dump.complete();
    let mut scheduler = start(dump.connection(), &[options]).await?;
    let looker = scheduler.looker();
    let mut simulation = Simulation::new(&workloads, args.copies);
    let mut pods = looker.pending();
    if let Some(wanted) = &args.pod {
        let (namespace, name) = wanted.split_once('/').unwrap_or(("default", wanted));
        pods.retain(|pod| {
            let is_pod = &*pod.meta.namespace == namespace && &*pod.meta.name == name;
            let is_of_workload = simulation
                .workload(pod)
                .is_some_and(|workload| workload.namespace == namespace && workload.name == name);
            is_pod || is_of_workload
        });
        ensure!(
            !pods.is_empty(),
            "--pod: no pod that waits for a node, and no workload that lacks pods, is called {wanted} in the files"
        );
    }
    for pod in &pods {
        simulation.place(looker, pod)?;
    }
    scheduler.stop().await;
    let placed = simulation.placed;
    if args.output == "json" {
        return Ok(serde_json::to_string_pretty(&placed)? + "\n");
    }
    if placed.is_empty() {
        return Ok("no pod waits for a node\n".to_owned());
    }
    Ok(placed.iter().map(Placed::text).collect())
}

/// Simulation with the pods placed so far.
struct Simulation<'a> {
    /// Workloads by the uids of their pods.
    workloads: HashMap<&'a str, &'a Workload>,
    copies: usize,
    placed: Vec<Placed>,
    /// Index in `placed` of each workload, by the uid of its first pod.
    workload_indexes: HashMap<&'a str, usize>,
}

impl<'a> Simulation<'a> {
    fn new(workloads: &'a [Workload], copies: usize) -> Self {
        let pods = workloads
            .iter()
            .flat_map(|workload| workload.pods.iter().map(move |uid| (&**uid, workload)));
        Self {
            workloads: pods.collect(),
            copies,
            placed: Vec::new(),
            workload_indexes: HashMap::new(),
        }
    }

    fn workload(&self, pod: &Pod) -> Option<&'a Workload> {
        self.workloads.get(&*pod.meta.uid).copied()
    }

    /// Schedules the requested number of copies of a pod.
    fn place(&mut self, looker: &mut Looker, pod: &Arc<Pod>) -> Result<()> {
        let workload = self.workload(pod);
        let first = workload.and_then(|workload| workload.pods.first());
        let known_index = first.and_then(|first| self.workload_indexes.get(&**first).copied());
        if let (Some(index), Some(workload)) = (known_index, workload) {
            let before = &mut self.placed[index];
            if workload.alike && before.copies < before.wanted {
                // All pods of the workload are alike, so no other pod can find a node.
                before.wanted += self.copies;
                return Ok(());
            }
        }
        let (nodes, explained) = self.copies_of(looker, pod)?;
        let Some(explained) = explained else { return Ok(()) };
        let found_all = nodes.len() == self.copies;
        match known_index {
            Some(index) => {
                let before = &mut self.placed[index];
                if before.copies == before.wanted && !found_all {
                    before.explained = explained;
                }
                before.wanted += self.copies;
                before.copies += nodes.len();
                before.nodes.extend(nodes);
            }
            None => {
                if let Some(first) = first {
                    self.workload_indexes.insert(first, self.placed.len());
                }
                let (kind, namespace, name) = match workload {
                    Some(workload) => (workload.kind, &*workload.namespace, &*workload.name),
                    None => ("Pod", &*pod.meta.namespace, &*pod.meta.name),
                };
                let (pod, wanted, copies) =
                    (format!("{namespace}/{name}"), self.copies, nodes.len());
                self.placed.push(Placed { kind, pod, wanted, copies, nodes, explained });
            }
        }
        Ok(())
    }

    /// Returns the nodes of a pod's copies, and the explanation of the first copy without a node, or else of
    /// the first copy.
    fn copies_of(
        &self,
        looker: &mut Looker,
        pod: &Arc<Pod>,
    ) -> Result<(Vec<String>, Option<Explained>)> {
        let (mut nodes, mut reported) = (Vec::new(), None);
        for copy in 0..self.copies {
            let Some(explained) = looker.explain_pod(pod) else {
                let (namespace, name) = (&pod.meta.namespace, &pod.meta.name);
                let scheduler = &pod.spec.scheduler_name;
                bail!("{namespace}/{name}: no profile has the name {scheduler:?}");
            };
            let best = explained.best().first().map(|node| (*node).to_owned());
            if reported.is_none() || best.is_none() {
                reported = Some(explained);
            }
            let Some(node) = best else { break };
            looker.place(pod, &format!("{}#{copy}", pod.meta.uid), &node);
            nodes.push(node);
        }
        Ok((nodes, reported))
    }
}

impl Placed {
    fn text(&self) -> String {
        let Self { kind, pod, wanted, copies, nodes, explained } = self;
        let mut text = match (*kind, wanted, nodes.first()) {
            ("Pod", 1, Some(node)) => format!("{pod} goes to {node}\n"),
            ("Pod", 1, None) => format!("{pod} goes nowhere\n"),
            ("Pod", ..) => format!("{pod}: {copies} of {wanted} find a node\n"),
            _ => format!("{kind} {pod}: {copies} of {wanted} find a node\n"),
        };
        if *wanted > 1 && !nodes.is_empty() {
            text += &format!("  {}\n", pods_per_node(nodes));
        }
        text + &table(explained)
    }
}

/// Returns the number of pods of each node, the highest first, for at most eight nodes.
fn pods_per_node(nodes: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes {
        *counts.entry(node).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let shown = counts.iter().take(MAX_SHOWN_NODES);
    let shown: Vec<String> = shown.map(|(node, count)| format!("{count} to {node}")).collect();
    let mut text = shown.join(", ");
    let more_count = counts.len().saturating_sub(MAX_SHOWN_NODES);
    if more_count > 0 {
        text += &format!(", and some to {more_count} more");
    }
    text
}

fn read(path: &PathBuf) -> Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    Ok(std::fs::read_to_string(path)?)
}

/// Returns the evaluation of a pod of a live cluster by the scheduler that has a profile for it, or by a scheduler with
/// upstream's defaults if `schedulers` is empty. `None` if no scheduler has a profile for the pod. Only reads.
///
/// # Errors
/// Fails if the caches do not sync in time.
pub async fn explain(
    kube: kube::Client,
    namespace: &str,
    pod: &str,
    schedulers: &[SchedulerOptions],
) -> Result<Option<Explained>> {
    let mut scheduler = start(kube, schedulers).await?;
    let explained = scheduler.explain(namespace, pod);
    scheduler.stop().await;
    Ok(explained)
}

async fn start(
    kube: kube::Client,
    options: &[SchedulerOptions],
) -> Result<LiveScheduler, Unsynced> {
    let scheduler = LiveScheduler::start(kube, &Clock::system(), options, "evenkeel-explain");
    scheduler.synced(SYNC_TIMEOUT).await
}

/// Returns a line for each node, for at most eight nodes of each kind of result.
pub fn table(explained: &Explained) -> String {
    let mut text = String::new();
    if let Some(refusal) = &explained.overall {
        text += &format!("  no node: {} says: {}\n", refusal.plugin, refusal.reasons.join(", "));
    }
    let (fit, refused): (Vec<_>, Vec<_>) =
        explained.nodes.iter().partition(|node| node.refused.is_none());
    for node in fit.iter().take(MAX_SHOWN_NODES) {
        let scores: Vec<String> = node
            .scores
            .iter()
            .filter(|(_, score)| *score != 0)
            .map(|(plugin, score)| format!("{plugin} {score}"))
            .collect();
        text += &format!("  {:<24} {:>5}  {}\n", node.node, node.total, scores.join(", "));
    }
    if fit.len() > MAX_SHOWN_NODES {
        text += &format!("  and {} more that will do\n", fit.len() - MAX_SHOWN_NODES);
    }
    for node in refused.iter().take(MAX_SHOWN_NODES) {
        let Some(refusal) = &node.refused else { continue };
        let reasons = refusal.reasons.join(", ");
        text += &format!("  {:<24}    no  {}: {reasons}\n", node.node, refusal.plugin);
    }
    if refused.len() > MAX_SHOWN_NODES {
        text += &format!("  and {} more that refuse\n", refused.len() - MAX_SHOWN_NODES);
    }
    for eviction in explained.evictions.iter().take(MAX_SHOWN_NODES) {
        let pods = eviction.pods.join(", ");
        let broken = match eviction.violations {
            0 => String::new(),
            n => format!(" ({n} against a disruption budget)"),
        };
        text += &format!("  {:<24}   yes  once these are evicted: {pods}{broken}\n", eviction.node);
    }
    if let Some(message) = &explained.message {
        text += &format!("  {message}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes, a Deployment of five pods without pods, and a pending pod.
    const CLUSTER: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a, uid: a}, status: {allocatable: {cpu: 4, memory: 4Gi, pods: 10}}}
- {apiVersion: v1, kind: Node, metadata: {name: b, uid: b}, status: {allocatable: {cpu: 2, memory: 4Gi, pods: 10}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {cpu: 1500m}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: lone, namespace: shop}
spec: {priority: 5, containers: [{name: c, resources: {requests: {cpu: 500m}}}]}
";

    async fn simulated(text: &str, more: &[&str]) -> Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), text)?;
        let path = file.path().display().to_string();
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let line = ["schedule", "--simulate", &path].into_iter().chain(more.iter().copied());
        simulate(&<Line as clap::Parser>::try_parse_from(line)?.args).await
    }

    #[tokio::test]
    async fn the_pods_of_a_workload_are_reported_together() {
        let text = simulated(CLUSTER, &[]).await.unwrap();
        let heads: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(heads, ["shop/lone goes to a", "Deployment shop/web: 3 of 5 find a node"]);
        assert!(text.contains("\n  2 to a, 1 to b\n"), "{text}");
        assert!(text.contains("0/2 nodes are available: 2 Insufficient cpu."), "{text}");
    }

    #[tokio::test]
    async fn a_single_pod_can_be_simulated_with_copies() {
        let text = simulated(CLUSTER, &["--pod", "shop/web", "--output", "json"]).await.unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let one = &report[0];
        assert_eq!((report.as_array().unwrap().len(), &one["kind"]), (1, &"Deployment".into()));
        assert_eq!((&one["wanted"], &one["copies"]), (&5.into(), &3.into()));
        let text = simulated(CLUSTER, &["--pod", "shop/lone", "--copies", "13"]).await.unwrap();
        assert!(text.starts_with("shop/lone: 12 of 13 find a node\n  8 to a, 4 to b\n"), "{text}");
        assert!(simulated(CLUSTER, &["--pod", "shop/nobody"]).await.is_err());
    }

    #[tokio::test]
    async fn the_report_names_evicted_pods() {
        let full = "{apiVersion: v1, kind: Pod, metadata: {name: there, namespace: shop, uid: t}, \
            spec: {nodeName: b, containers: [{name: c, resources: {requests: {cpu: 2}}}]}}";
        let urgent = "{apiVersion: v1, kind: Pod, metadata: {name: urgent, namespace: shop}, \
            spec: {priority: 9, nodeSelector: {only: b}, containers: [{name: c, resources: {requests: {cpu: 2}}}]}}";
        let cluster = CLUSTER.replace("{name: b, uid: b}", "{name: b, uid: b, labels: {only: b}}");
        let cluster = format!("{cluster}---\n{full}\n---\n{urgent}\n");
        let text = simulated(&cluster, &["--pod", "shop/urgent"]).await.unwrap();
        let line = text.lines().find(|line| line.contains("once these are evicted: shop/there"));
        assert!(line.is_some_and(|line| line.starts_with("  b ")), "{text}");
    }
}
