//! Changes that the options describe, and the variants to compare.

use super::WhatIfArgs;
use crate::clusters::read_manifests;
use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use evenkeel_component::features::FeatureGates;
use evenkeel_kube_scheduler::{Registry, library_options};
use evenkeel_scheduler::SchedulerOptions;
use evenkeel_whatif::{
    Nodes, Outage, Scenario,
    clone::{CloneOptions, keep},
    parse_duration,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Maximum number of parts that the name of a variant lists.
const MAX_PARTS: usize = 4;

/// A change of a cluster.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ChangeArgs {
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
}

/// Another change, after `--versus`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Versus {
    #[command(flatten)]
    change: ChangeArgs,

    /// Configuration of the scheduler. Default: as of the first change.
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
}

impl Versus {
    /// Parses the options after `--versus`.
    ///
    /// # Errors
    /// Fails if an option is invalid, or belongs to both changes.
    fn parse_options(options: &[String]) -> Result<Self> {
        Self::try_parse_from(options).map_err(|error| {
            let text = error.to_string();
            // Usage and tips follow after an empty line.
            let reason: Vec<&str> =
                text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let reason = reason.join(" ");
            let reason = reason.strip_prefix("error: ").unwrap_or(&reason);
            anyhow!(
                "--versus: {reason}; after it stand the options of a change, before it those of both changes, such as --for"
            )
        })
    }
}

impl ChangeArgs {
    /// Returns the change with the options that all variants share.
    ///
    /// # Errors
    /// Fails if manifests cannot be read, or contain an object that a simulation does not support.
    fn scenario(&self, args: &WhatIfArgs, scheduler: SchedulerOptions) -> Result<Scenario> {
        let outage = self.outage.clone().map(|nodes| Outage { nodes, duration: self.outage_for });
        Ok(Scenario {
            seed: args.seed,
            scheduler,
            apply: if self.apply.is_empty() { Vec::new() } else { applied(&self.apply)? },
            add: self.add_nodes.zip(self.like.clone()),
            drain: self.drain.clone(),
            remove: self.remove_nodes.clone(),
            outage,
            duration: args.duration,
            job_duration: args.job_duration,
            ignore_behaviors: args.ignore_behaviors,
        })
    }

    /// Describes the parts of the change, in their order.
    fn parts(&self) -> Vec<String> {
        let applied = self.apply.iter().map(|path| format!("-f {}", path.display()));
        let added = self.add_nodes.iter().zip(&self.like);
        let added = added.map(|(count, like)| format!("add {count} like {like}"));
        let of_nodes = |verb: &'static str, choices: &[Nodes]| -> Vec<String> {
            choices.iter().map(|nodes| format!("{verb} {}", short(nodes))).collect()
        };
        (applied.chain(added))
            .chain(self.outage.iter().map(|nodes| format!("outage of {}", short(nodes))))
            .chain(of_nodes("drain", &self.drain))
            .chain(of_nodes("remove", &self.remove_nodes))
            .collect()
    }
}

/// Returns a selection of nodes in the short form of the options.
fn short(nodes: &Nodes) -> String {
    match nodes {
        Nodes::Name(name) => name.clone(),
        Nodes::Matching(selector) => selector.to_string(),
    }
}

/// Returns the name of a variant: the parts of its change, and its configuration if the other variant has a different one or
/// none.
fn name(change: &ChangeArgs, scheduler_config: Option<&Path>) -> String {
    let mut parts = change.parts();
    parts.extend(scheduler_config.map(|path| format!("scheduler {}", path.display())));
    if parts.is_empty() {
        return "no change".to_owned();
    }
    let more = parts.len().saturating_sub(MAX_PARTS);
    if more > 0 {
        parts.truncate(MAX_PARTS);
        parts.push(format!("{more} more"));
    }
    parts.join(", ")
}

/// Returns the objects to apply, in the order in which they are applied.
///
/// # Errors
/// Fails if a file cannot be read or contains no object, or a simulation does not support an object, such as a webhook.
fn applied(paths: &[PathBuf]) -> Result<Vec<Value>> {
    let objects = read_manifests(paths).context("-f")?;
    let kept = objects.into_iter().map(|object| {
        let (kind, name) = (object["kind"].clone(), object["metadata"]["name"].clone());
        keep(object, &CloneOptions::default()).with_context(|| {
            format!(
                "-f: {} {}: simulations do not support objects of this kind; remove it from the files",
                kind.as_str().unwrap_or_default(),
                name.as_str().unwrap_or_default()
            )
        })
    });
    kept.collect()
}

/// Reads a configuration of the scheduler; upstream's defaults without a file.
///
/// # Errors
/// Fails if the file cannot be read, or is not a scheduler configuration that this program supports.
fn scheduler(path: Option<&Path>) -> Result<SchedulerOptions> {
    let Some(path) = path else { return Ok(SchedulerOptions::default()) };
    let name = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(name)?;
    library_options(&text, &Registry::in_tree(), &FeatureGates::default()).with_context(name)
}

/// Returns the variants with their names: one, or two to compare.
///
/// # Errors
/// Fails if an option or a file is invalid, or options request several comparisons.
pub(super) fn scenarios(args: &WhatIfArgs) -> Result<Vec<(String, Scenario)>> {
    let compares = args.baseline || !args.versus.is_empty();
    let configs: Vec<&Path> = args.scheduler_config.iter().map(PathBuf::as_path).collect();
    let scenario = |change: &ChangeArgs, config: Option<&Path>| -> Result<Scenario> {
        change.scenario(args, scheduler(config)?)
    };
    match &*configs {
        [a, b] if !compares => {
            let variant = |path: &Path| -> Result<(String, Scenario)> {
                Ok((path.display().to_string(), scenario(&args.change, Some(path))?))
            };
            return Ok(vec![variant(a)?, variant(b)?]);
        }
        [] | [_] => {}
        [_, _] => {
            return Err(anyhow!(
                "--scheduler-config: two configurations are a comparison of their own; give one, or leave out --baseline and --versus"
            ));
        }
        _ => return Err(anyhow!("--scheduler-config: at most two can be compared")),
    }
    let config = configs.first().copied();
    let changed = scenario(&args.change, config)?;
    if args.baseline {
        ensure!(
            !args.change.parts().is_empty(),
            "--baseline: there is no change to compare with; add one, such as --drain"
        );
        let unchanged = Scenario {
            apply: Vec::new(),
            add: None,
            drain: Vec::new(),
            remove: Vec::new(),
            outage: None,
            ..changed.clone()
        };
        return Ok(vec![("no change".to_owned(), unchanged), (name(&args.change, None), changed)]);
    }
    if args.versus.is_empty() {
        let name = config.map_or("default".to_owned(), |path| path.display().to_string());
        return Ok(vec![(name, changed)]);
    }
    let other = Versus::parse_options(&args.versus)?;
    let other_config = other.scheduler_config.as_deref();
    let shown = |config| other_config.and(config);
    let mut first = name(&args.change, shown(config));
    let mut second = name(&other.change, shown(other_config));
    if first == second {
        first += " (first)";
        second += " (second)";
    }
    Ok(vec![(first, changed), (second, scenario(&other.change, other_config.or(config))?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: WhatIfArgs,
    }

    fn names(line: &[&str]) -> Result<Vec<String>> {
        let args = Line::try_parse_from([&["what-if", "c.json"], line].concat())?.args;
        Ok(scenarios(&args)?.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn variants_are_named_by_their_changes() {
        for (line, expected) in [
            (&[][..], &["default"][..]),
            (&["--drain", "a"], &["default"]),
            (&["--drain", "a", "--baseline"], &["no change", "drain a"]),
            (
                &["--drain", "pool=old", "--for", "6h", "--versus", "--remove-nodes", "pool=old"],
                &["drain pool=old", "remove pool=old"],
            ),
            (
                &[
                    "--add-nodes",
                    "2",
                    "--like",
                    "a",
                    "--drain",
                    "b",
                    "--versus",
                    "--outage",
                    "zone/z",
                ],
                &["add 2 like a, drain b", "outage of topology.kubernetes.io/zone=z"],
            ),
            (&["--versus", "--drain", "a"], &["no change", "drain a"]),
            (
                &["--drain", "a", "--versus", "--drain", "a"],
                &["drain a (first)", "drain a (second)"],
            ),
            (
                &[
                    "--drain",
                    "a",
                    "--drain",
                    "b",
                    "--drain",
                    "c",
                    "--drain",
                    "d",
                    "--drain",
                    "e",
                    "--drain",
                    "f",
                    "--baseline",
                ],
                &["no change", "drain a, drain b, drain c, drain d, 2 more"],
            ),
        ] {
            assert_eq!(names(line).expect("variants"), expected, "{line:?}");
        }
    }

    #[test]
    fn variants_share_what_stands_before() {
        let line = [
            "what-if",
            "c.json",
            "--drain",
            "a",
            "--for",
            "6h",
            "--seed",
            "7",
            "--ignore-behaviors",
            "--versus",
            "--drain",
            "b",
            "--remove-nodes",
            "b",
        ];
        let args = Line::try_parse_from(line).expect("arguments").args;
        let found = scenarios(&args).expect("variants");
        for (name, scenario) in &found {
            let shared = (scenario.duration, scenario.seed, scenario.ignore_behaviors);
            assert_eq!(shared, (Duration::from_hours(6), 7, true), "{name}");
        }
        let drained = |index: usize| found[index].1.drain.iter().map(short).collect::<Vec<_>>();
        assert_eq!((drained(0), drained(1)), (vec!["a".to_owned()], vec!["b".to_owned()]));
        assert_eq!((found[0].1.remove.len(), found[1].1.remove.len()), (0, 1));
    }

    #[test]
    fn a_configuration_is_of_both_variants_unless_the_second_has_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str, backoff: u32| {
            let path = folder.path().join(name);
            let text = format!(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npodInitialBackoffSeconds: {backoff}\n"
            );
            fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let (a, b) = (path("a.yaml", 3), path("b.yaml", 4));
        let backoffs = |line: &[&str]| {
            let args = Line::try_parse_from([&["what-if", "c.json"], line].concat());
            let found = scenarios(&args.expect("arguments").args).expect("variants");
            let backoff = |(name, scenario): &(String, Scenario)| {
                let file = name.rsplit('/').next().unwrap_or_default().to_owned();
                (file, scenario.scheduler.pod_initial_backoff.as_secs())
            };
            found.iter().map(backoff).collect::<Vec<_>>()
        };
        let expected = |a: (&str, u64), b: (&str, u64)| {
            [a, b].map(|(name, backoff)| (name.to_owned(), backoff)).to_vec()
        };
        let config = "--scheduler-config";
        assert_eq!(backoffs(&[config, &a, config, &b]), expected(("a.yaml", 3), ("b.yaml", 4)));
        let line = [config, &a, "--drain", "n", "--baseline"];
        assert_eq!(backoffs(&line), expected(("no change", 3), ("drain n", 3)));
        let line = [config, &a, "--drain", "n", "--versus", "--drain", "m"];
        assert_eq!(backoffs(&line), expected(("drain n", 3), ("drain m", 3)));
        let line = [config, &a, "--drain", "n", "--versus", "--drain", "n", config, &b];
        assert_eq!(backoffs(&line), expected(("a.yaml", 3), ("b.yaml", 4)));
    }

    #[test]
    fn comparisons_that_make_no_sense_are_refused() {
        for (line, expected) in [
            (&["--baseline"][..], "--baseline: there is no change"),
            (&["--drain", "a", "--versus", "--for", "1h"], "--versus: unexpected argument '--for'"),
            (&["--drain", "a", "--versus", "b"], "--versus: unexpected argument 'b'"),
            (
                &["--drain", "a", "--versus", "--add-nodes", "1"],
                "--versus: the following required arguments were not provided: --like <NODE>",
            ),
            (&["--drain", "a", "--versus"], "a value is required for '--versus"),
            (&["--drain", "a", "--baseline", "--versus", "--drain", "b"], "cannot be used with"),
            (
                &[
                    "--scheduler-config",
                    "a",
                    "--scheduler-config",
                    "b",
                    "--drain",
                    "a",
                    "--baseline",
                ],
                "two configurations are a comparison of their own",
            ),
            (
                &["--scheduler-config", "a", "--scheduler-config", "b", "--scheduler-config", "c"],
                "at most two can be compared",
            ),
        ] {
            let error = names(line).expect_err("refused").to_string();
            assert!(error.contains(expected), "{line:?}: {error}");
        }
    }
}
