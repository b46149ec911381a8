//! `evenkeel fault`: makes simulated nodes, zones and pods of a cluster fail, with annotations that their kubelets read.

use crate::{
    clusters::Connection,
    command::{block_on, print},
    durations,
};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use evenkeel_api::{
    Kind, StrMap, View,
    time::{Timestamp, saturating_add, seconds},
    views::{Node, Pod},
};
use evenkeel_nodes::{
    CRASH, DISK_PRESSURE, FaultEnd, MEMORY_PRESSURE, NOT_READY, NodeFaults, PID_PRESSURE, SILENT,
    fault, next_second,
};
use evenkeel_runtime::{
    client::{Client, ListOptions, Metadata},
    plan::PatchType,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{fmt::Write as _, process::ExitCode, time::Duration};

/// Label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Namespace of pods without `--namespace`.
const DEFAULT_NAMESPACE: &str = "default";

/// Arguments of `evenkeel fault`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FaultArgs {
    /// What fails: node/NAME, zone/NAME, nodes (with --selector) or pod/NAME, whose containers crash. `list` prints the
    /// faults in effect.
    #[arg(value_name = "TARGET", value_parser = parse_target)]
    target: Target,

    /// Fault of nodes: no network (silent), a container runtime that is down (not-ready), or a pressure that the kubelet
    /// reports. Default: silent. With --stop: all.
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<FaultKind>,

    /// End the fault after this time of the cluster, such as 5m. Default: it lasts until --stop. The containers of a pod
    /// crash again and again for this time, and once without.
    #[arg(long = "for", value_name = "DURATION", value_parser = durations::parse)]
    duration: Option<Duration>,

    /// End the fault.
    #[arg(long, conflicts_with = "duration")]
    stop: bool,

    /// Label selector of `nodes`.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Namespace of the pod. Default: default.
    #[arg(short, long)]
    namespace: Option<String>,

    /// Name of the cluster. Default: the only one, or that of the kubeconfig's current context, or `default`.
    #[arg(long)]
    name: Option<String>,

    /// Output: text, or json.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Objects that fail.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    List,
    Node(String),
    Zone(String),
    Nodes,
    Pod(String),
}

fn parse_target(text: &str) -> Result<Target, String> {
    match text.split_once('/') {
        None if text == "list" => Ok(Target::List),
        None if text == "nodes" => Ok(Target::Nodes),
        Some(("node" | "nodes" | "no", name)) if !name.is_empty() => {
            Ok(Target::Node(name.to_owned()))
        }
        Some(("zone", name)) if !name.is_empty() => Ok(Target::Zone(name.to_owned())),
        Some(("pod" | "pods" | "po", name)) if !name.is_empty() => Ok(Target::Pod(name.to_owned())),
        _ => {
            Err("write node/NAME, zone/NAME, nodes (with --selector), pod/NAME or list".to_owned())
        }
    }
}

/// Fault of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FaultKind {
    Silent,
    NotReady,
    MemoryPressure,
    DiskPressure,
    PidPressure,
}

impl FaultKind {
    /// Returns the full name of the annotation.
    fn annotation(self) -> &'static str {
        match self {
            Self::Silent => SILENT,
            Self::NotReady => NOT_READY,
            Self::MemoryPressure => MEMORY_PRESSURE,
            Self::DiskPressure => DISK_PRESSURE,
            Self::PidPressure => PID_PRESSURE,
        }
    }
}

/// Returns the name of a fault: the name of its annotation without the prefix.
fn fault_name(annotation: &str) -> &str {
    annotation.rsplit('/').next().unwrap_or(annotation)
}

/// Returns the end of a fault that lasts this long from now, rounded up to a whole second for readers of the annotation.
pub(crate) fn end_after(now: Timestamp, duration: Duration) -> FaultEnd {
    FaultEnd::At(next_second(saturating_add(now, duration)))
}

/// Annotation of a node with a planned outage. Its value is the value of the fault's annotation when the outage
/// started.
const PLANNED: &str = "evenkeel.dev/planned-outage";

/// Starts a planned outage: partitions a node from the API server until `end`.
///
/// # Errors
/// Fails if the API server rejects the change of the node.
pub(crate) async fn start_planned_outage(client: &Client, node: &str, end: FaultEnd) -> Result<()> {
    let value = Some(end.to_string());
    let change = Change { annotations: vec![(SILENT, value.clone()), (PLANNED, value)] };
    annotate(client, &Node::kind(), "", node, &change).await
}

/// Ends the planned outage of a node from a previous run. Returns whether there was one.
///
/// # Errors
/// Fails if the API server rejects the change of the node.
pub(crate) async fn end_planned_outage(client: &Client, node: &Node) -> Result<bool> {
    let Some(change) = end_of_plan(&node.meta.annotations) else { return Ok(false) };
    annotate(client, &Node::kind(), "", &node.meta.name, &change).await?;
    Ok(true)
}

/// Returns the change that ends a planned outage. Keeps a fault that another client has started since then.
fn end_of_plan(annotations: &StrMap) -> Option<Change> {
    let planned = annotations.get(PLANNED)?;
    let mut change = Change { annotations: vec![(PLANNED, None)] };
    if annotations.get(SILENT) == Some(planned) {
        change.annotations.push((SILENT, None));
    }
    Some(change)
}

/// Change of an object's annotations: each with its value, or `None` to remove it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    annotations: Vec<(&'static str, Option<String>)>,
}

/// Checks that each flag has an effect on the target.
fn check(args: &FaultArgs) -> Result<()> {
    if args.selector.is_some() != (args.target == Target::Nodes) {
        bail!("nodes and --selector belong together, as in: evenkeel fault nodes -l pool=blue");
    }
    let flags = [
        ("--stop", args.stop),
        ("--for", args.duration.is_some()),
        ("--kind", args.kind.is_some()),
    ];
    if args.target == Target::List
        && let Some((flag, _)) = flags.into_iter().find(|(_, is_set)| *is_set)
    {
        bail!(
            "{flag} does nothing to a list; name what it is for, as in: evenkeel fault node/NAME {flag}"
        );
    }
    if args.namespace.is_some() && !matches!(args.target, Target::Pod(_) | Target::List) {
        bail!("--namespace is for pods: nodes and zones have none");
    }
    Ok(())
}

/// Returns the change that starts or ends the faults of the arguments.
fn change(args: &FaultArgs, now: Timestamp) -> Result<Change> {
    if args.duration.is_some_and(|duration| duration.is_zero()) {
        bail!("--for: write a duration above 0, such as 5m");
    }
    let end = |duration| end_after(now, duration);
    if let Target::Pod(_) = args.target {
        if args.kind.is_some() {
            bail!("--kind is for nodes: the containers of a pod crash");
        }
        let value = match (args.stop, args.duration) {
            (true, _) => None,
            (false, None) => Some(format!("at {}", next_second(now))),
            (false, Some(duration)) => Some(end(duration).to_string()),
        };
        return Ok(Change { annotations: vec![(CRASH, value)] });
    }
    if args.stop {
        let kinds = match args.kind {
            Some(kind) => vec![kind],
            None => FaultKind::value_variants().to_vec(),
        };
        let annotations = kinds.into_iter().map(|kind| (kind.annotation(), None)).collect();
        return Ok(Change { annotations });
    }
    let kind = args.kind.unwrap_or(FaultKind::Silent);
    let value = args.duration.map_or(FaultEnd::Open, end).to_string();
    Ok(Change { annotations: vec![(kind.annotation(), Some(value))] })
}

impl Change {
    /// Returns the merge patch of the object.
    fn patch(&self) -> String {
        let annotations: serde_json::Map<_, _> = self
            .annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        json!({ "metadata": { "annotations": annotations } }).to_string()
    }

    /// Returns a line about the change of an object.
    fn text(&self, object: &str) -> String {
        match &*self.annotations {
            [(name, Some(value))] if value == "true" => {
                format!("{object} {}, until --stop\n", fault_name(name))
            }
            [(name, Some(value))] => format!("{object} {} {value}\n", fault_name(name)),
            _ => format!("{object} well\n"),
        }
    }
}

/// A fault in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Fault {
    /// `node/NAME`, or `pod/NAME`.
    target: String,
    /// Namespace of a pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    /// Zone of a node.
    #[serde(skip_serializing_if = "String::is_empty")]
    zone: String,
    fault: &'static str,
    /// Time at which the fault ends (RFC 3339); `None` if it lasts until it is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

/// Returns the faults in effect, those of nodes first.
fn faults(nodes: &[Node], by: &NodeFaults, pods: &[Pod], now: Timestamp) -> Vec<Fault> {
    let until = |end| match end {
        FaultEnd::Open => None,
        FaultEnd::At(end) => Some(seconds(end)),
    };
    let of_node = |node: &Node| -> Vec<Fault> {
        let in_effect = |kind: &FaultKind| {
            let end = by.fault(node, kind.annotation(), now)?;
            Some(Fault {
                target: format!("node/{}", node.meta.name),
                namespace: String::new(),
                zone: node.meta.labels.get(ZONE).unwrap_or_default().to_owned(),
                fault: fault_name(kind.annotation()),
                until: until(end),
            })
        };
        FaultKind::value_variants().iter().filter_map(in_effect).collect()
    };
    let of_pod = |pod: &Pod| {
        let end = fault(&pod.meta.annotations, CRASH, now)?;
        Some(Fault {
            target: format!("pod/{}", pod.meta.name),
            namespace: pod.meta.namespace.to_string(),
            zone: String::new(),
            fault: fault_name(CRASH),
            until: until(end),
        })
    };
    nodes.iter().flat_map(of_node).chain(pods.iter().filter_map(of_pod)).collect()
}

/// Returns the table of faults.
fn table(faults: &[Fault]) -> String {
    if faults.is_empty() {
        return "There is no fault. Begin one with: evenkeel fault node/NAME --for 5m\n".to_owned();
    }
    let where_ = |fault: &Fault| match (&*fault.namespace, &*fault.zone) {
        ("", "") => "-".to_owned(),
        ("", zone) => format!("zone {zone}"),
        (namespace, _) => format!("namespace {namespace}"),
    };
    let header = ["TARGET", "IN", "FAULT", "UNTIL"].map(str::to_owned);
    let rows = faults.iter().map(|fault| {
        let until = fault.until.clone().unwrap_or_else(|| "--stop".to_owned());
        [fault.target.clone(), where_(fault), fault.fault.to_owned(), until]
    });
    let rows: Vec<[String; 4]> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    for [target, place, fault, until] in &rows {
        let [w0, w1, w2] = widths;
        // Writing to a string never fails.
        let _ = writeln!(text, "{target:w0$}   {place:w1$}   {fault:w2$}   {until}");
    }
    text
}

/// Runs `evenkeel fault`.
pub(crate) fn main(args: &FaultArgs) -> ExitCode {
    block_on(async {
        check(args)?;
        let cluster = Connection::find(args.name.as_deref())?;
        let now = cluster.time().await?.timestamp()?;
        let client = cluster.client().await?;
        if args.target == Target::List {
            let by = by_behaviors(&client).await?;
            let faults = faults(&nodes(&client, "").await?, &by, &pods(&client).await?, now);
            print(&match &*args.output {
                "json" => format!("{}\n", serde_json::to_string_pretty(&faults)?),
                _ => table(&faults),
            });
            return Ok(ExitCode::SUCCESS);
        }
        let change = change(args, now)?;
        let namespace = args.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let (kind, namespace, names) = match &args.target {
            Target::Pod(name) => (Pod::kind(), namespace, vec![name.clone()]),
            _ => (Node::kind(), "", node_names(args, &client).await?),
        };
        for name in names {
            annotate(&client, &kind, namespace, &name, &change).await?;
            let object = format!("{}/{name}", kind.kind.to_lowercase());
            match &*args.output {
                "json" => print(&format!("{}\n", json!({ "target": object }))),
                _ => print(&change.text(&object)),
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the names of the nodes that the arguments select.
async fn node_names(args: &FaultArgs, client: &Client) -> Result<Vec<String>> {
    let selector = match &args.target {
        Target::Node(name) => return Ok(vec![name.clone()]),
        Target::Zone(zone) => format!("{ZONE}={zone}"),
        _ => args.selector.clone().unwrap_or_default(),
    };
    let selected = nodes(client, &selector).await?;
    if selected.is_empty() {
        bail!("no node has {selector}; the zones are: {}", zones(&nodes(client, "").await?));
    }
    Ok(selected.iter().map(|node| node.meta.name.to_string()).collect())
}

/// Returns the zones of nodes, sorted.
fn zones(nodes: &[Node]) -> String {
    let zones = nodes.iter().filter_map(|node| node.meta.labels.get(ZONE));
    let zones: std::collections::BTreeSet<&str> = zones.collect();
    zones.into_iter().collect::<Vec<_>>().join(", ")
}

async fn nodes(client: &Client, labels: &str) -> Result<Vec<Node>> {
    let options = ListOptions { labels: labels.to_owned(), ..ListOptions::default() };
    Ok(client.list::<Node>("", &options).await.context("the nodes cannot be listed")?.items)
}

/// Returns the faults of nodes that the cluster's Behaviors cause. A cluster without their CustomResourceDefinition has none.
async fn by_behaviors(client: &Client) -> Result<NodeFaults> {
    const PATH: &str = "/apis/sim.evenkeel.dev/v1alpha1/behaviors";
    let request = http::Request::get(PATH).body(Default::default())?;
    match client.raw(request).await {
        Err(error) if error.is_not_found() => Ok(NodeFaults::default()),
        answer => {
            let answer = answer.context("the Behaviors cannot be listed")?;
            let list: Value = serde_json::from_slice(answer.body())?;
            Ok(NodeFaults::of_objects(list["items"].as_array().into_iter().flatten()))
        }
    }
}

async fn pods(client: &Client) -> Result<Vec<Pod>> {
    let pods = client.list::<Pod>("", &ListOptions::default()).await;
    Ok(pods.context("the pods cannot be listed")?.items)
}

/// Patches the annotations of an object.
async fn annotate(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    name: &str,
    change: &Change,
) -> Result<()> {
    let (patch, form) = (change.patch().into(), PatchType::Merge);
    let patched = client.patch::<Metadata>(kind, namespace, name, "", form, patch).await;
    patched.with_context(|| format!("{}/{name}", kind.kind.to_lowercase()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use evenkeel_api::Encoding;

    #[derive(clap::Parser)]
    struct Fault {
        #[command(flatten)]
        args: FaultArgs,
    }

    fn args(line: &str) -> FaultArgs {
        Fault::parse_from(std::iter::once("fault").chain(line.split(' '))).args
    }

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().expect("a time")
    }

    #[test]
    fn arguments_change_annotations() {
        for (line, patch, text) in [
            ("node/a", r#"{"sim.evenkeel.dev/silent":"true"}"#, "o silent, until --stop\n"),
            (
                "zone/a --for 5m",
                r#"{"sim.evenkeel.dev/silent":"until 2026-01-02T03:09:05Z"}"#,
                "o silent until 2026-01-02T03:09:05Z\n",
            ),
            (
                "nodes -l a=b --kind disk-pressure",
                r#"{"sim.evenkeel.dev/disk-pressure":"true"}"#,
                "o disk-pressure, until --stop\n",
            ),
            ("node/a --stop --kind silent", r#"{"sim.evenkeel.dev/silent":null}"#, "o well\n"),
            (
                "pod/a",
                r#"{"sim.evenkeel.dev/crash":"at 2026-01-02T03:04:05Z"}"#,
                "o crash at 2026-01-02T03:04:05Z\n",
            ),
            (
                "pod/a --for 1s",
                r#"{"sim.evenkeel.dev/crash":"until 2026-01-02T03:04:06Z"}"#,
                "o crash until 2026-01-02T03:04:06Z\n",
            ),
            ("pod/a --stop", r#"{"sim.evenkeel.dev/crash":null}"#, "o well\n"),
        ] {
            let change = change(&args(line), now()).expect("valid");
            let want = format!(r#"{{"metadata":{{"annotations":{patch}}}}}"#);
            assert_eq!((change.patch(), &*change.text("o")), (want, text), "{line}");
        }
        let all = change(&args("node/a --stop"), now()).expect("valid");
        assert_eq!(all.annotations.len(), FaultKind::value_variants().len());
        let refused = change(&args("pod/a --kind silent"), now()).expect_err("not for pods");
        assert!(refused.to_string().contains("--kind is for nodes"), "{refused}");
        let refused = change(&args("node/a --for 0s"), now()).expect_err("over at once");
        assert!(refused.to_string().starts_with("--for: write a duration above 0"), "{refused}");
        let later = "2026-01-02T03:04:05.3Z".parse().expect("a time");
        for (line, want) in [
            ("node/a --for 500ms", "o silent until 2026-01-02T03:04:06Z\n"),
            ("node/a --for 1s", "o silent until 2026-01-02T03:04:07Z\n"),
            ("pod/a", "o crash at 2026-01-02T03:04:06Z\n"),
        ] {
            assert_eq!(change(&args(line), later).expect("valid").text("o"), want, "{line}");
        }
        for target in ["a", "node", "node/", "deployment/a", "zones/a"] {
            assert!(parse_target(target).is_err(), "{target}");
        }
    }

    #[test]
    fn flags_without_an_effect_are_refused() {
        for (line, want) in [
            ("list", Ok(())),
            ("list -o json", Ok(())),
            ("node/a --stop", Ok(())),
            ("pod/a -n shop", Ok(())),
            ("nodes -l pool=blue", Ok(())),
            ("list --stop", Err("--stop does nothing to a list")),
            ("list --for 5m", Err("--for does nothing to a list")),
            ("list --kind silent", Err("--kind does nothing to a list")),
            ("list -l pool=blue", Err("nodes and --selector belong together")),
            ("nodes", Err("nodes and --selector belong together")),
            ("node/a -n shop", Err("--namespace is for pods")),
        ] {
            let checked = check(&args(line)).map_err(|error| error.to_string());
            match (checked, want) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(want)) => assert!(error.starts_with(want), "{line}: {error}"),
                (found, _) => panic!("{line}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_end_of_a_plan_keeps_faults_of_others() {
        let node = |annotations: &[(&str, &str)]| annotations.iter().copied().collect::<StrMap>();
        let until = "until 2026-01-02T03:04:07Z";
        for (annotations, want) in [
            (&[(SILENT, "true")][..], None),
            (&[(PLANNED, until), (SILENT, until)], Some(&[PLANNED, SILENT][..])),
            (&[(PLANNED, until), (SILENT, "true")], Some(&[PLANNED])),
            (&[(PLANNED, "true")], Some(&[PLANNED])),
        ] {
            let annotations = node(annotations);
            let removed = end_of_plan(&annotations).map(|change| {
                assert!(change.annotations.iter().all(|(_, value)| value.is_none()));
                change.annotations.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
            });
            assert_eq!(removed.as_deref(), want, "{annotations:?}");
        }
    }

    #[test]
    fn faults_end_at_whole_seconds_and_not_too_early() {
        let half = "2026-01-02T03:04:05.5Z".parse().expect("a time");
        for (now, millis, want) in [
            (now(), 2000, "until 2026-01-02T03:04:07Z"),
            (now(), 1, "until 2026-01-02T03:04:06Z"),
            (half, 400, "until 2026-01-02T03:04:06Z"),
            (half, 500, "until 2026-01-02T03:04:06Z"),
            (half, 501, "until 2026-01-02T03:04:07Z"),
        ] {
            let end = end_after(now, Duration::from_millis(millis));
            assert_eq!(end.to_string(), want, "{now} {millis}");
        }
    }

    #[test]
    fn the_list_has_what_is_in_effect() {
        let object = |kind: &str, value: &str| {
            json!({"metadata": {"name": "a", "namespace": "ns", "labels": {(ZONE): "z"}, "annotations": {
                format!("sim.evenkeel.dev/{kind}"): value,
            }}})
            .to_string()
        };
        let node = |kind: &str, value: &str| {
            Node::decode(object(kind, value).as_bytes(), Encoding::Json).expect("a node")
        };
        let pod = |value: &str| {
            Pod::decode(object("crash", value).as_bytes(), Encoding::Json).expect("a pod")
        };
        let nodes = [
            node("silent", "true"),
            node("not-ready", "until 2026-01-02T03:04:06Z"),
            node("silent", "until 2026-01-02T03:04:05Z"),
            node("silent", "no"),
        ];
        let pods = [pod("until 2026-01-03T00:00:00Z"), pod("at 2026-01-03T00:00:00Z")];
        assert_eq!(
            table(&faults(&nodes, &NodeFaults::default(), &pods, now())),
            "TARGET   IN             FAULT       UNTIL\n\
             node/a   zone z         silent      --stop\n\
             node/a   zone z         not-ready   2026-01-02T03:04:06Z\n\
             pod/a    namespace ns   crash       2026-01-03T00:00:00Z\n"
        );
        assert!(table(&[]).contains("There is no fault"));
    }
}
