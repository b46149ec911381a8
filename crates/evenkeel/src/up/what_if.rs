//! Simulator of the console's what-ifs: copies the running cluster, and runs `evenkeel what-if` in this process.

use crate::clusters::parse_manifests;
use anyhow::{Context as _, Result, bail, ensure};
use evenkeel_component::count::counted;
use evenkeel_console::{
    PreparedWhatIf, Proceed, WhatIf, WhatIfChange, WhatIfProgress, WhatIfReport,
};
use evenkeel_runtime::client::{Client, full_text};
use evenkeel_scheduler::SchedulerOptions;
use evenkeel_whatif::{
    Cluster, Nodes, Outage, Page, PageVariant, Progress, Report, Scenario, charts,
    clone::{CloneOptions, keep, read},
    parse_duration, report, simulate_with_progress,
};
use futures::future::BoxFuture;
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

/// Maximum virtual time.
const MAX_DURATION: Duration = Duration::from_hours(31 * 24);
/// Maximum number of added nodes.
const MAX_ADDED: u32 = 1000;

/// Returns the options of the cluster's schedulers.
type MakeSchedulers = Box<dyn Fn() -> Vec<SchedulerOptions> + Send + Sync>;

/// Simulator of a cluster of `evenkeel up`.
pub(super) struct Simulator {
    /// Options of the cluster's schedulers. The copy uses the first one.
    pub(super) schedulers: MakeSchedulers,
}

impl WhatIf for Simulator {
    fn prepare<'a>(
        &'a self,
        client: &'a Client,
        change: WhatIfChange,
    ) -> BoxFuture<'a, Result<Box<dyn PreparedWhatIf>, String>> {
        Box::pin(async move {
            // Invalid changes are refused before the cluster is read.
            let mut scenario = scenario(&change).map_err(|error| format!("{error:#}"))?;
            if let Some(options) = (self.schedulers)().into_iter().next() {
                scenario.scheduler = options;
            }
            let cloned = read(client, &CloneOptions::default()).await;
            let cloned = cloned
                .map_err(|error| format!("The cluster cannot be copied: {}", full_text(&error)))?;
            let prepared = Prepared { cluster: cloned.cluster, scenario };
            Ok(Box::new(prepared) as Box<dyn PreparedWhatIf>)
        })
    }
}

/// A copy, and its change.
struct Prepared {
    cluster: Cluster,
    scenario: Scenario,
}

/// Payload of the unwinding that ends a run.
struct Cancelled;

impl PreparedWhatIf for Prepared {
    fn objects(&self) -> usize {
        self.cluster.objects().len()
    }

    fn run(self: Box<Self>, proceed: Proceed<'_>) -> Result<Option<WhatIfReport>, String> {
        let Self { cluster, scenario } = *self;
        let whole = scenario.duration;
        let progress = |progress| {
            let progress = match progress {
                Progress::Loading => WhatIfProgress::Loading,
                Progress::Settling(passed) => WhatIfProgress::Settling(passed),
                Progress::Changed(passed) => WhatIfProgress::Changed(passed, whole),
            };
            if !proceed(progress) {
                // Unwinding is the only way to end a simulation early. Its runtimes and threads end with this thread's stack.
                resume_unwind(Box::new(Cancelled));
            }
        };
        let simulate = || simulate_with_progress(&cluster, &scenario, progress);
        let recording = match catch_unwind(AssertUnwindSafe(simulate)) {
            Ok(recording) => recording.map_err(|error| error.to_string())?,
            Err(payload) if payload.is::<Cancelled>() => return Ok(None),
            Err(_) => {
                return Err("the simulation panicked; the log of the cluster says where".to_owned());
            }
        };
        let (report, charts) = (report(&recording), charts(&recording));
        let variant = PageVariant { name: "the change", report: &report, charts: &charts };
        let page = Page { variants: &[variant], comparison: None }.html();
        let html = page.map_err(|error| format!("the report cannot be written: {error}"))?;
        Ok(Some(WhatIfReport { html, summary: summary(&report) }))
    }
}

/// Returns a summary of the report in a few sentences.
fn summary(report: &Report) -> String {
    let text = report.text();
    let mut summary = text.lines().next().unwrap_or_default().to_owned();
    if !report.evicted.is_empty() {
        summary += &format!(" Evicted: {}.", counted(report.evicted.len(), "pod"));
    }
    if !report.shortages.is_empty() {
        let workloads = counted(report.shortages.len(), "workload");
        summary += &format!(" Fewer ready pods than before: {workloads}.");
    }
    if let Some((part, error)) = report.failed().next() {
        summary += &format!(" Failed: {part}: {error}.");
    }
    summary
}

/// Returns the scenario of a change.
///
/// # Errors
/// Returns the first invalid field.
fn scenario(change: &WhatIfChange) -> Result<Scenario> {
    let nodes = |field: &'static str, texts: &[String]| -> Result<Vec<Nodes>> {
        texts
            .iter()
            .map(|text| text.parse().with_context(|| format!("{field}: {text:?}")))
            .collect()
    };
    let duration = |field: &'static str, text: &str| {
        parse_duration(text).map_err(anyhow::Error::msg).context(field)
    };
    let add = match &*change.add_nodes {
        "" => None,
        count => {
            let count = count.parse().ok().filter(|count| (1..=MAX_ADDED).contains(count));
            let count =
                count.with_context(|| format!("add: write a number from 1 to {MAX_ADDED}"))?;
            ensure!(!change.like.is_empty(), "add: write the node that the new nodes are like");
            Some((count, change.like.clone()))
        }
    };
    let outage = match &*change.outage {
        "" => None,
        text => Some(Outage {
            nodes: text.parse().with_context(|| format!("outage: {text:?}"))?,
            duration: match &*change.outage_for {
                "" => None,
                text => Some(duration("length of the outage", text)?),
            },
        }),
    };
    let apply = match change.apply.trim() {
        "" => Vec::new(),
        text => {
            let kept = parse_manifests("objects", text)?.into_iter().map(|object| {
                let kind = object["kind"].as_str().unwrap_or_default().to_owned();
                keep(object, &CloneOptions::default()).with_context(|| {
                    format!("objects: a simulation leaves out a {kind}; take it out of the text")
                })
            });
            kept.collect::<Result<_>>()?
        }
    };
    let lasts = duration("virtual time", &change.duration)?;
    if lasts > MAX_DURATION {
        bail!("virtual time: write at most {}d", MAX_DURATION.as_secs() / 86_400);
    }
    Ok(Scenario {
        apply,
        add,
        drain: nodes("drain", &change.drain)?,
        remove: nodes("remove", &change.remove)?,
        outage,
        duration: lasts,
        ..Scenario::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const CLUSTER: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: 1, memory: 4Gi, pods: 10}}}
- {apiVersion: v1, kind: Node, metadata: {name: b}, status: {allocatable: {cpu: 1, memory: 4Gi, pods: 10}}}
";

    fn change(duration: &str) -> WhatIfChange {
        WhatIfChange { duration: duration.to_owned(), ..WhatIfChange::default() }
    }

    fn prepared(change: &WhatIfChange) -> Box<Prepared> {
        let mut cluster = Cluster::default();
        cluster.add(CLUSTER, &CloneOptions::default()).expect("objects");
        Box::new(Prepared { cluster, scenario: scenario(change).expect("a scenario") })
    }

    #[test]
    fn fields_become_a_scenario() {
        let apply = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n";
        let full = WhatIfChange {
            drain: vec!["a".to_owned(), "zone/z".to_owned()],
            add_nodes: "3".to_owned(),
            like: "b".to_owned(),
            outage: "zone/y".to_owned(),
            outage_for: "10m".to_owned(),
            apply: apply.to_owned(),
            ..change("2d")
        };
        let found = scenario(&full).expect("a scenario");
        assert_eq!((found.drain.len(), found.add), (2, Some((3, "b".to_owned()))));
        assert_eq!(found.outage.and_then(|outage| outage.duration), Some(Duration::from_mins(10)));
        assert_eq!(found.apply[0]["kind"], "Namespace", "it is first");
        assert_eq!(found.duration, Duration::from_hours(48));
    }

    #[test]
    fn errors_name_the_field() {
        let empty = || change("1h");
        for (wrong, want) in [
            (change("soon"), "virtual time: "),
            (change("99d"), "virtual time: write at most 31d"),
            (WhatIfChange { add_nodes: "0".to_owned(), ..empty() }, "add: write a number"),
            (WhatIfChange { add_nodes: "1".to_owned(), ..empty() }, "add: write the node"),
            (WhatIfChange { drain: vec!["a=b=c".to_owned()], ..empty() }, "drain: \"a=b=c\": "),
            (WhatIfChange { outage: "zone/a b".to_owned(), ..empty() }, "outage: \"zone/a b\": "),
            (WhatIfChange { apply: "a: [".to_owned(), ..empty() }, "objects: "),
            (WhatIfChange { apply: "# none".to_owned(), ..empty() }, "objects: there is no object"),
            (
                WhatIfChange {
                    apply: "apiVersion: v1\nkind: Event\nmetadata: {name: e}".to_owned(),
                    ..empty()
                },
                "objects: a simulation leaves out a Event",
            ),
        ] {
            let error = format!("{:#}", scenario(&wrong).expect_err(want));
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn a_run_has_a_page_and_a_summary() {
        let drain = WhatIfChange { drain: vec!["a".to_owned()], ..change("1h") };
        let report = prepared(&drain).run(&|_| true).expect("it runs").expect("a report");
        assert!(
            report.html.contains("<html") && report.html.contains("drain"),
            "{}",
            report.summary
        );
        assert!(report.summary.contains("simulated"), "{}", report.summary);
        let unknown = WhatIfChange { drain: vec!["c".to_owned()], ..change("1h") };
        let error = prepared(&unknown).run(&|_| true).expect_err("no such node");
        assert!(error.contains("there is no node \"c\""), "{error}");
    }

    #[test]
    fn a_run_ends_when_it_is_not_to_proceed() {
        for stop_at in [1, 2, 20] {
            let calls = AtomicUsize::new(0);
            let proceed = |_| calls.fetch_add(1, Ordering::Relaxed) + 1 < stop_at;
            assert_eq!(prepared(&change("10d")).run(&proceed), Ok(None), "{stop_at}");
            assert_eq!(calls.load(Ordering::Relaxed), stop_at);
        }
    }
}
