//! `evenkeel schedule --simulate`: where pods would go, and why not elsewhere, worked out from what somebody wrote down of a
//! cluster. And the scheduler's part of `evenkeel explain pod/NAME`.

use anyhow::{Context as _, Result, bail, ensure};
use evenkeel_runtime::{
    cache::Caches,
    client::{Client, dry_run},
    clock::Clock,
    tasks::Tasks,
};
use evenkeel_scheduler::{
    SchedulerOptions,
    explain::{Explained, Looker},
    program::{self, Registry},
    simulate::Dump,
};
use serde::Serialize;
use std::{fmt::Write as _, io::Read as _, path::PathBuf, time::Duration};

/// How long a live cluster may take to tell what there is.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long reflectors may take to end.
const STOP: Duration = Duration::from_secs(5);
/// Of each kind of answer, so many nodes are shown.
const SHOWN: usize = 8;

/// Flags of `evenkeel schedule`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Only say where pods would go. Required: this command never writes to a cluster.
    #[arg(long, required = true)]
    pub simulate: bool,

    /// What there is: files with `kubectl get nodes,pods,… -o yaml` (or json), - for the standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Only this pod, as NAMESPACE/NAME; all that wait for a node unless given.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub pod: Option<String>,

    /// So many pods like each: how many would there be room for?
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub copies: usize,

    /// Configuration of the scheduler (KubeSchedulerConfiguration); upstream's defaults unless given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Output: text, or json.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    pub output: String,
}

/// Where one pod goes.
#[derive(Debug, Serialize)]
struct Placed {
    pod: String,
    /// How many of its copies found a node, each of those taken once.
    copies: usize,
    /// By node, in the order in which they were taken.
    nodes: Vec<String>,
    /// What there was to say of the first that found none, or else of the first.
    explained: Explained,
}

/// Simulates, and returns what is to be printed.
///
/// # Errors
/// When a file cannot be read, or there is no such pod.
pub async fn simulate(args: &Args) -> Result<String> {
    let mut dump = Dump::default();
    for path in &args.files {
        let text = read(path).with_context(|| path.display().to_string())?;
        dump.add(&text).with_context(|| path.display().to_string())?;
    }
    let mut options = SchedulerOptions::default();
    if let Some(path) = &args.config {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        options.profiles = program::profiles(&text, &Registry::builtin())
            .with_context(|| path.display().to_string())?;
    }
    let (mut looker, tasks) = looking(dump.connection(), &options).await?;
    let mut pods = looker.pending();
    if let Some(wanted) = &args.pod {
        let (namespace, name) = wanted.split_once('/').unwrap_or(("default", wanted));
        pods.retain(|pod| &*pod.meta.namespace == namespace && &*pod.meta.name == name);
        ensure!(!pods.is_empty(), "{wanted} does not wait for a node");
    }
    let mut placed = Vec::new();
    for pod in &pods {
        let name = format!("{}/{}", pod.meta.namespace, pod.meta.name);
        let mut nodes = Vec::new();
        let mut told: Option<Explained> = None;
        for copy in 0..args.copies {
            let Some(explained) = looker.explain_pod(pod) else {
                bail!("{name}: no profile has the name {:?}", pod.spec.scheduler_name);
            };
            let best = explained.best().first().map(|node| (*node).to_owned());
            if told.is_none() || best.is_none() {
                told = Some(explained);
            }
            let Some(node) = best else { break };
            looker.place(pod, &format!("{}#{copy}", pod.meta.uid), &node);
            nodes.push(node);
        }
        placed.extend(told.map(|explained| Placed {
            pod: name,
            copies: nodes.len(),
            nodes,
            explained,
        }));
    }
    tasks.shut_down(STOP).await;
    if args.output == "json" {
        return Ok(serde_json::to_string_pretty(&placed)? + "\n");
    }
    let mut text = String::new();
    for one in &placed {
        let Placed { pod, nodes, copies, explained } = one;
        match (args.copies, nodes.first()) {
            (1, Some(node)) => writeln!(text, "{pod} goes to {node}")?,
            (1, None) => writeln!(text, "{pod} goes nowhere")?,
            (wanted, _) => writeln!(text, "{pod}: {copies} of {wanted} find a node")?,
        }
        text.push_str(&table(explained));
    }
    if placed.is_empty() {
        text.push_str("no pod waits for a node\n");
    }
    Ok(text)
}

fn read(path: &PathBuf) -> Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    Ok(std::fs::read_to_string(path)?)
}

/// What the scheduler with upstream's defaults has to say of a pod of a live cluster, of which it only reads.
///
/// # Errors
/// When the cluster does not tell what there is.
pub async fn explain(kube: kube::Client, namespace: &str, pod: &str) -> Result<Option<Explained>> {
    let (kube, _) = dry_run(kube);
    let (mut looker, tasks) = looking(kube, &SchedulerOptions::default()).await?;
    let explained = looker.explain(namespace, pod);
    tasks.shut_down(STOP).await;
    Ok(explained)
}

async fn looking(kube: kube::Client, options: &SchedulerOptions) -> Result<(Looker, Tasks)> {
    let (clock, tasks) = (Clock::system(), Tasks::new());
    let client =
        Client::builder(kube, clock.clone()).qps(-1.0).user_agent("evenkeel-explain").build();
    let caches = Caches::new(client.clone(), clock.clone(), &prometheus::Registry::new());
    let mut looker = Looker::new(client, caches.clone(), clock, options);
    caches.start(&tasks);
    let ready = tokio::time::timeout(PATIENCE, looker.ready()).await;
    ready.map_err(|_| anyhow::anyhow!("not told in time: {:?}", caches.unsynced()))?;
    Ok((looker, tasks))
}

/// What there is to say of each node, a line each; of many, the first.
pub fn table(explained: &Explained) -> String {
    let mut text = String::new();
    if let Some(refusal) = &explained.overall {
        text += &format!("  no node: {} says: {}\n", refusal.plugin, refusal.reasons.join(", "));
    }
    let (fit, refused): (Vec<_>, Vec<_>) =
        explained.nodes.iter().partition(|node| node.refused.is_none());
    for node in fit.iter().take(SHOWN) {
        let scores: Vec<String> = node
            .scores
            .iter()
            .filter(|(_, score)| *score != 0)
            .map(|(plugin, score)| format!("{plugin} {score}"))
            .collect();
        text += &format!("  {:<24} {:>5}  {}\n", node.node, node.total, scores.join(", "));
    }
    if fit.len() > SHOWN {
        text += &format!("  and {} more that will do\n", fit.len() - SHOWN);
    }
    for node in refused.iter().take(SHOWN) {
        let Some(refusal) = &node.refused else { continue };
        let reasons = refusal.reasons.join(", ");
        text += &format!("  {:<24}    no  {}: {reasons}\n", node.node, refusal.plugin);
    }
    if refused.len() > SHOWN {
        text += &format!("  and {} more that refuse\n", refused.len() - SHOWN);
    }
    if let Some(message) = &explained.message {
        text += &format!("  {message}\n");
    }
    text
}
