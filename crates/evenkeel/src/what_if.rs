//! `evenkeel what-if`: what a change would do to a cluster, in virtual time.

use crate::{
    clone::read_files,
    clusters::read_manifests,
    command::{exit_code, print},
};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use evenkeel_component::features::FeatureGates;
use evenkeel_kube_scheduler::{Registry, library_options};
use evenkeel_whatif::{
    Charts, Cluster, Comparison, Nodes, Outage, Page, PageVariant, Progress, Report, Scenario,
    charts,
    clone::{CloneOptions, keep},
    compare, parse_duration, report, simulate_with_progress,
};
use serde::Serialize;
use serde_json::Value;
use std::{
    cell::Cell,
    fs,
    io::Write as _,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Interval between messages about the progress. A shorter run prints none.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Loads a copy of a cluster into memory, lets it settle, makes the change, and reports what happens. Nothing is written
/// to a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct WhatIfArgs {
    /// Files or folders from `evenkeel clone` or `kubectl get … -o yaml` (or json).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// File or folder of objects to apply: definitions and namespaces first. One that the server refuses is an error.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    apply: Vec<PathBuf>,

    /// Node to drain (node-1), zone (zone/NAME), or a label selector of nodes. May be given more than once. The nodes are
    /// drained one after the other.
    #[arg(long, value_name = "NODE|SELECTOR")]
    drain: Vec<Nodes>,

    /// Number of nodes to add.
    #[arg(long, value_name = "COUNT", requires = "like")]
    add_nodes: Option<u32>,

    /// Node that the added nodes are like.
    #[arg(long, value_name = "NODE", requires = "add_nodes")]
    like: Option<String>,

    /// Node to remove without a drain, after --drain is done, or a label selector of nodes. May be given more than once.
    #[arg(long, value_name = "NODE|SELECTOR")]
    remove_nodes: Vec<Nodes>,

    /// Node that loses its connection, or a label selector of nodes.
    #[arg(long, value_name = "NODE|SELECTOR")]
    outage: Option<Nodes>,

    /// Length of the outage. Default: until the end.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "outage")]
    outage_for: Option<Duration>,

    /// Configuration of the scheduler (KubeSchedulerConfiguration). Two are compared. Default: upstream's defaults.
    #[arg(long, value_name = "FILE")]
    scheduler_config: Vec<PathBuf>,

    /// Virtual time to run, such as 90m or 7d.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, default_value = "1h")]
    duration: Duration,

    /// Virtual time that a pod of a Job runs.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1m")]
    job_duration: Duration,

    /// Seed of all random decisions. Equal input and an equal seed give an equal report.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Output: text, json with a timeline, or html: a page with plots that needs no other file.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json", "html"])]
    output: String,
}

/// Results of all variants.
#[derive(Debug, Serialize)]
struct Results {
    variants: Vec<Variant>,
    /// Differences of two variants.
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
}

/// Result of one variant.
#[derive(Debug, Serialize)]
struct Variant {
    /// File of the scheduler's configuration; `default` for none.
    name: String,
    report: Report,
    /// Time series for the plots of a page.
    #[serde(skip)]
    charts: Charts,
}

/// Runs `evenkeel what-if`, and returns its exit code.
pub(crate) fn main(args: &WhatIfArgs) -> ExitCode {
    exit_code(output(args).and_then(|Output { text, refused }| {
        print(&text);
        match refused {
            None => Ok(ExitCode::SUCCESS),
            Some(refused) => bail!("a part of the change failed: {refused}"),
        }
    }))
}

/// Output of the command.
struct Output {
    text: String,
    /// The first part of the change that failed, with its error.
    refused: Option<String>,
}

/// Runs all variants, and returns the output.
fn output(args: &WhatIfArgs) -> Result<Output> {
    ensure!(args.scheduler_config.len() <= 2, "--scheduler-config: at most two can be compared");
    let cluster = read_files(&args.files, &CloneOptions::default())?;
    let scenarios = scenarios(args)?;
    let variants = run_all(&cluster, &scenarios)?;
    let comparison = match &*variants {
        [a, b] => Some(compare([&a.report, &b.report])),
        _ => None,
    };
    let refused = variants.iter().flat_map(|variant| variant.report.failed()).next();
    let refused = refused.map(|(part, error)| format!("{part}: {error}"));
    let results = Results { variants, comparison };
    Ok(Output { text: format(args, &results)?, refused })
}

/// Returns the results in the form of `--output`.
fn format(args: &WhatIfArgs, results: &Results) -> Result<String> {
    if args.output == "json" {
        return Ok(serde_json::to_string_pretty(results)? + "\n");
    }
    if args.output == "html" {
        return page(results);
    }
    let mut text = String::new();
    for Variant { name, report, .. } in &results.variants {
        if results.variants.len() > 1 {
            text += &format!("{name}\n\n");
        }
        text += &report.text();
        text += if results.variants.len() > 1 { "\n" } else { "" };
    }
    if let (Some(comparison), [a, b]) = (&results.comparison, &*results.variants) {
        text += comparison.text([&a.name, &b.name]).trim_start();
    }
    Ok(text)
}

/// Returns the results as a page.
fn page(results: &Results) -> Result<String> {
    let variants: Vec<PageVariant<'_>> = results
        .variants
        .iter()
        .map(|Variant { name, report, charts }| PageVariant { name, report, charts })
        .collect();
    Ok(Page { variants: &variants, comparison: results.comparison.as_ref() }.html()?)
}

/// Messages on the standard error about a simulation that takes long.
struct ProgressLog<'a> {
    /// Name of the variant; `None` if there is only one.
    name: Option<&'a str>,
    /// Virtual time to simulate.
    duration: Duration,
    last: Cell<Instant>,
}

impl<'a> ProgressLog<'a> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the user waits for this program, not for virtual time"
    )]
    fn now() -> Instant {
        Instant::now()
    }

    fn new(name: Option<&'a str>, duration: Duration) -> Self {
        Self { name, duration, last: Cell::new(Self::now()) }
    }

    /// Writes a message if the last one was some time ago.
    fn report(&self, progress: Progress) {
        let now = Self::now();
        if now.duration_since(self.last.get()) < PROGRESS_INTERVAL {
            return;
        }
        self.last.set(now);
        // Nothing depends on a message that cannot be written.
        let _ = writeln!(std::io::stderr(), "{}", message(self.name, progress, self.duration));
    }
}

/// Returns a message about the progress.
fn message(name: Option<&str>, progress: Progress, duration: Duration) -> String {
    let time = |time: Duration| {
        let seconds = time.as_secs();
        format!("{}h{:02}m{:02}s", seconds / 3600, seconds / 60 % 60, seconds % 60)
    };
    let name = name.map_or(String::new(), |name| format!("{name}: "));
    match progress {
        Progress::Loading => format!("{name}loading the cluster"),
        Progress::Settling(passed) => {
            format!("{name}the cluster settles before the change: {} simulated", time(passed))
        }
        Progress::Changed(passed) => {
            format!("{name}{} of {} simulated", time(passed), time(duration))
        }
    }
}

/// Returns the objects to apply, in the order in which the server takes them.
///
/// # Errors
/// When a file cannot be read or has no object, or a simulation leaves one out, such as a webhook.
fn applied(paths: &[PathBuf]) -> Result<Vec<Value>> {
    let objects = read_manifests(paths).context("-f")?;
    let kept = objects.into_iter().map(|object| {
        let (kind, name) = (object["kind"].clone(), object["metadata"]["name"].clone());
        keep(object, &CloneOptions::default()).with_context(|| {
            format!(
                "-f: {} {}: a simulation leaves out objects of this kind; take it out of the files",
                kind.as_str().unwrap_or_default(),
                name.as_str().unwrap_or_default()
            )
        })
    });
    kept.collect()
}

/// Returns the variants with their names.
fn scenarios(args: &WhatIfArgs) -> Result<Vec<(String, Scenario)>> {
    let outage = args.outage.clone().map(|nodes| Outage { nodes, duration: args.outage_for });
    let base = Scenario {
        seed: args.seed,
        apply: applied(&args.apply)?,
        add: args.add_nodes.zip(args.like.clone()),
        drain: args.drain.clone(),
        remove: args.remove_nodes.clone(),
        outage,
        duration: args.duration,
        job_duration: args.job_duration,
        ..Scenario::default()
    };
    if args.scheduler_config.is_empty() {
        return Ok(vec![("default".to_owned(), base)]);
    }
    let variants = args.scheduler_config.iter().map(|path| {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).with_context(|| name.clone())?;
        let gates = FeatureGates::default();
        let scheduler =
            library_options(&text, &Registry::in_tree(), &gates).with_context(|| name.clone())?;
        Ok((name, Scenario { scheduler, ..base.clone() }))
    });
    variants.collect()
}

/// Runs the variants, each on a thread of its own.
fn run_all(cluster: &Cluster, scenarios: &[(String, Scenario)]) -> Result<Vec<Variant>> {
    std::thread::scope(|scope| {
        let running: Vec<_> = scenarios
            .iter()
            .map(|(name, scenario)| {
                let shown = (scenarios.len() > 1).then_some(&**name);
                let run = move || {
                    let log = ProgressLog::new(shown, scenario.duration);
                    simulate_with_progress(cluster, scenario, |progress| log.report(progress))
                };
                (name, scope.spawn(run))
            })
            .collect();
        let finished = running.into_iter().map(|(name, thread)| {
            let recording =
                thread.join().map_err(|_| anyhow!("the simulation of {name} panicked"))?;
            let recording = recording?;
            let (report, charts) = (report(&recording), charts(&recording));
            Ok(Variant { name: name.clone(), report, charts })
        });
        finished.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: WhatIfArgs,
    }

    const CLUSTER: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: 1, memory: 4Gi, pods: 10}}}
- {apiVersion: v1, kind: Node, metadata: {name: b}, status: {allocatable: {cpu: 1, memory: 4Gi, pods: 10}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: web, resources: {requests: {cpu: 600m}}}]}
";

    fn run(more: &[&str]) -> Result<String> {
        let file = tempfile::NamedTempFile::with_suffix(".yaml")?;
        fs::write(file.path(), CLUSTER)?;
        let path = file.path().display().to_string();
        Ok(output(&Line::try_parse_from([&["what-if", &path], more].concat())?.args)?.text)
    }

    #[test]
    fn objects_are_applied_in_the_order_of_load_and_a_refused_one_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.yaml");
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: fresh}, spec: {containers: [{name: c, image: i}]}}";
        let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: fresh}}";
        let outcome = |text: &str| {
            fs::write(&path, text).expect("written");
            let cluster = folder.path().join("cluster");
            fs::write(&cluster, CLUSTER).expect("written");
            let line =
                ["what-if", &cluster.display().to_string(), "-f", &path.display().to_string()];
            let args = Line::try_parse_from(line).expect("arguments").args;
            output(&args).map(|output| output.refused).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(outcome(&format!("{pod}\n---\n{namespace}\n")), Ok(None));
        let refused = "apply Pod p: namespaces \"fresh\" not found".to_owned();
        assert_eq!(outcome(pod), Ok(Some(refused)));
        let gadget = "{apiVersion: example.com/v1, kind: Gadget, metadata: {name: g}}";
        let refused = "apply Gadget g: the cluster has no Gadget of example.com/v1".to_owned();
        assert_eq!(outcome(gadget), Ok(Some(refused)));
        let event = "{apiVersion: v1, kind: Event, metadata: {name: e}}";
        let error = outcome(event).expect_err("left out");
        assert!(error.starts_with("-f: Event e: a simulation leaves out"), "{error}");
        let error = outcome("# nothing\n").expect_err("empty");
        assert!(error.contains("a.yaml has no object"), "{error}");
    }

    #[test]
    fn a_drain_is_reported_as_text_and_as_json() {
        let text = run(&["--drain", "a", "--for", "30m"]).expect("a report");
        assert!(text.contains("drain a: done after"), "{text}");
        assert!(text.contains("Pending: 1 pod\n"), "{text}");
        assert!(text.contains("0/2 nodes are available: 1 Insufficient cpu"), "{text}");
        let json = run(&["--drain", "a", "--for", "30m", "-o", "json"]).expect("a report");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let report = &json["variants"][0]["report"];
        assert_eq!(report["evicted"][0]["reason"], "EvictionByEvictionAPI");
        let whats: Vec<_> = report["timeline"]
            .as_array()
            .expect("events")
            .iter()
            .map(|event| &event["what"])
            .collect();
        assert!(whats.iter().any(|what| *what == "cordoned"), "{whats:?}");
        assert!(json.get("comparison").is_none());
    }

    #[test]
    fn a_drain_is_reported_as_a_page() {
        let page = run(&["--drain", "a", "--for", "30m", "-o", "html"]).expect("a page");
        assert!(page.starts_with("<!doctype html>"), "{page}");
        assert!(page.contains("What if: drain a"), "{page}");
        assert!(page.contains("0/2 nodes are available: 1 Insufficient cpu"), "{page}");
    }

    #[test]
    fn messages_say_how_far_a_simulation_is() {
        let hours = Duration::from_hours;
        let changed = Progress::Changed(Duration::from_secs(3 * 3600 + 61));
        assert_eq!(message(None, changed, hours(24)), "3h01m01s of 24h00m00s simulated");
        let settling = Progress::Settling(Duration::from_secs(90));
        assert_eq!(
            message(Some("a.yaml"), settling, hours(24)),
            "a.yaml: the cluster settles before the change: 0h01m30s simulated"
        );
        assert_eq!(message(None, Progress::Loading, hours(1)), "loading the cluster");
    }

    #[test]
    fn flags_are_checked() {
        for flags in [
            &["--add-nodes", "1"][..],
            &["--like", "a"],
            &["--outage-for", "1h"],
            &["--for", "soon"],
            &["--drain", "a=b=c"],
            &["--scheduler-config", "/nowhere.yaml"],
        ] {
            assert!(run(flags).is_err(), "{flags:?}");
        }
    }
}
