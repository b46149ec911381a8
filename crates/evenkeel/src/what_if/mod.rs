//! `evenkeel what-if`: simulates the effects of a change on a cluster, in virtual time.

mod memory;
mod run;
mod variants;

use crate::{
    clone::read_files,
    command::{exit_code, print},
};
use anyhow::{Result, bail};
use evenkeel_whatif::{
    Charts, Comparison, Page, PageVariant, Report, clone::CloneOptions, compare, parse_duration,
};
use run::run_all;
use serde::Serialize;
use std::{path::PathBuf, process::ExitCode, time::Duration};
use variants::ChangeArgs;

/// Loads a copy of a cluster into memory, lets it settle, makes the change, and reports what happens. Nothing is written
/// to a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct WhatIfArgs {
    /// Files or folders from `evenkeel clone` or `kubectl get … -o yaml` (or json).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    change: ChangeArgs,

    /// Compare with the cluster without the change.
    #[arg(long, conflicts_with = "versus")]
    baseline: bool,

    /// Compare with another change: its options, such as --drain, up to the end of the line. The options of both changes, such as
    /// --for, stand before.
    #[arg(long, value_name = "OPTIONS", num_args = 1.., allow_hyphen_values = true)]
    versus: Vec<String>,

    /// Configuration of the scheduler (KubeSchedulerConfiguration). Two are compared. With another comparison, it is that of both
    /// variants, unless --versus names one. Default: upstream's defaults.
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

    /// Ignore the annotations sim.evenkeel.dev/… and the Behaviors that steer the simulation.
    #[arg(long)]
    ignore_behaviors: bool,

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
    /// Description of the change, or file of the scheduler's configuration; `default` without a comparison.
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
    let scenarios = variants::scenarios(args)?;
    let cluster = read_files(&args.files, &CloneOptions::default())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::fs;

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
        assert!(
            error.starts_with("-f: Event e: simulations do not support objects of this kind"),
            "{error}"
        );
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
    fn a_change_is_compared_with_none_and_with_another() {
        let compare = |more: &[&str]| {
            run(&[&["--for", "30m", "--drain", "a"], more].concat()).expect("a report")
        };
        let text = compare(&["--baseline"]);
        let (_, differences) =
            text.split_once("\ndrain a instead of no change\n").expect("the end");
        for line in [
            "  evicted pods: 0 -> 1\n",
            "  pending pods: 0 -> 1\n",
            "  Deployment shop/web: none -> 0/2 nodes are available: 1 Insufficient cpu",
            "  Deployment shop/web on a: 1 -> 0\n",
            "  evenkeel-what-if create pods/eviction: 0 -> 1\n",
        ] {
            assert!(differences.contains(line), "{line}: {text}");
        }
        assert_eq!(compare(&["--baseline"]), text);
        let json = compare(&["--baseline", "-o", "json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let name = |index: usize| json["variants"][index]["name"].clone();
        assert_eq!((name(0), name(1)), ("no change".into(), "drain a".into()));
        let evicted = serde_json::json!([{"name": "Deployment shop/web", "values": [0, 1]}]);
        assert_eq!(json["comparison"]["evicted"], evicted);
        let page = compare(&["--baseline", "-o", "html"]);
        for expected in [
            "What if: drain a instead of no change",
            "no change: at most 0, 0 at the end (solid line); drain a: at most 1, 1 at the end",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        let text = compare(&["--versus", "--add-nodes", "1", "--like", "a", "--drain", "a"]);
        assert!(text.contains("\nadd 1 like a, drain a instead of drain a\n"), "{text}");
        assert!(text.contains("  pending pods: 1 -> 0\n"), "{text}");
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
