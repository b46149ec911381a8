//! The switches of the simulation: its time, the faults of nodes, and the Behaviors.

use super::{Link, ago::Ago};
use crate::{route::ObjectPath, source::BEHAVIORS};
use askama::Template;
use evenkeel_api::{
    View as _,
    time::{Timestamp, saturating_add, seconds},
    views::Node,
};
use evenkeel_nodes::{
    DISK_PRESSURE, FaultEnd, MEMORY_PRESSURE, NOT_READY, NodeFaults, PID_PRESSURE, SILENT,
    next_second,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Maximum number of listed faults.
const MAX_FAULTS: usize = 200;
/// Maximum number of nodes that a form offers.
const MAX_PLACES: usize = 500;

/// Faults of nodes: the annotation, and its meaning.
static FAULTS: [(&str, &str); 5] = [
    (SILENT, "no network"),
    (NOT_READY, "the container runtime is down"),
    (MEMORY_PRESSURE, "MemoryPressure"),
    (DISK_PRESSURE, "DiskPressure"),
    (PID_PRESSURE, "PIDPressure"),
];

/// Page of the simulation's switches.
#[derive(Debug, Clone, Template)]
#[template(path = "simulation.html")]
pub(crate) struct SimulationPage {
    /// Token of forms. Empty if pages only read.
    pub(crate) form_token: String,
    /// The cluster's time.
    pub(crate) time: TimeFacts,
    /// Errors of parts that the user may not see.
    pub(crate) refused: Vec<String>,
    /// Faults in effect. `None` if the user may not see nodes.
    pub(crate) faults: Option<FaultFacts>,
    /// The Behaviors. `None` if the user may not see them, or the cluster has no definition of them.
    pub(crate) behaviors: Option<Vec<BehaviorRow>>,
}

/// The time of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimeFacts {
    /// Time, in RFC 3339.
    pub(crate) now: String,
    /// Factor of the system's time.
    pub(crate) speed: f64,
    /// Remaining time of a jump. Empty without a jump.
    pub(crate) jump: String,
    /// Whether the time is the cluster's own.
    pub(crate) is_adjustable: bool,
    /// Whether the user may change the time.
    pub(crate) may_change: bool,
}

/// Faults of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultFacts {
    /// Faults in effect.
    pub(crate) rows: Vec<FaultRow>,
    /// Number of faults that are not listed.
    pub(crate) more: usize,
    /// Faults to choose from: names and meanings.
    pub(crate) kinds: Vec<(&'static str, &'static str)>,
    /// Nodes and zones to choose from.
    pub(crate) places: Vec<String>,
}

/// A fault in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultRow {
    /// The node, with its page.
    pub(crate) node: Link,
    /// Zone of the node. Empty without one.
    pub(crate) zone: String,
    /// Name of the fault.
    pub(crate) fault: &'static str,
    /// End time of the fault; `None` if it lasts until a user ends it.
    pub(crate) until: Option<Ago>,
    /// Whether this page can end the fault: its source is an annotation, not a Behavior.
    pub(crate) is_annotated: bool,
}

/// A Behavior of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BehaviorRow {
    /// Name, with its page.
    pub(crate) link: Link,
    /// What it selects, in lines.
    pub(crate) selects: Vec<String>,
    /// What it sets, in lines.
    pub(crate) sets: Vec<String>,
    /// Whether the Behavior is suspended.
    pub(crate) is_suspended: bool,
    /// Errors of the Behavior's fields. Empty for a valid one.
    pub(crate) invalid: String,
}

fn short(annotation: &'static str) -> &'static str {
    annotation.rsplit('/').next().unwrap_or(annotation)
}

/// Returns the faults in effect.
pub(crate) fn faults(by: &NodeFaults, now: Timestamp, nodes: &[Arc<Node>]) -> FaultFacts {
    let mut nodes: Vec<&Arc<Node>> = nodes.iter().collect();
    nodes.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    let zone = |node: &Node| node.meta.labels.get(ZONE).unwrap_or_default().to_owned();
    let of_node = |node: &&Arc<Node>| {
        let node = Arc::clone(node);
        let zone = zone(&node);
        FAULTS.iter().filter_map(move |(annotation, _)| {
            let until = match by.fault(&node, annotation, now)? {
                FaultEnd::Open => None,
                FaultEnd::At(end) => Some(Ago::new(now, end)),
            };
            Some(FaultRow {
                node: Link::new(
                    &*node.meta.name,
                    ObjectPath::of(&Node::kind(), "", &node.meta.name).href(),
                ),
                zone: zone.clone(),
                fault: short(annotation),
                until,
                is_annotated: node.meta.annotations.get(annotation).is_some(),
            })
        })
    };
    let mut rows: Vec<FaultRow> = nodes.iter().flat_map(of_node).collect();
    let more = rows.len().saturating_sub(MAX_FAULTS);
    rows.truncate(MAX_FAULTS);
    let zones: BTreeSet<String> =
        nodes.iter().map(|node| zone(node)).filter(|zone| !zone.is_empty()).collect();
    let zones = zones.into_iter().map(|zone| format!("zone/{zone}"));
    let names = nodes.iter().map(|node| node.meta.name.to_string());
    FaultFacts {
        rows,
        more,
        kinds: FAULTS.iter().map(|(annotation, meaning)| (short(annotation), *meaning)).collect(),
        places: zones.chain(names).take(MAX_PLACES).collect(),
    }
}

/// Change of a fault: the annotation with its value, and the names of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultChange {
    /// Names of the nodes.
    pub(crate) nodes: Vec<String>,
    annotation: &'static str,
    value: Option<String>,
}

impl FaultChange {
    /// Reads a form: a fault of a place (a node, `node/NAME` or `zone/NAME`) that begins and lasts for `duration`, or that ends.
    ///
    /// # Errors
    /// Fails if there is no such fault or place, or the duration is invalid.
    pub(crate) fn of(
        form: impl Fn(&str) -> Option<String>,
        duration: impl FnOnce(&str) -> Result<Duration, String>,
        nodes: &[Arc<Node>],
        now: Timestamp,
    ) -> Result<Self, String> {
        let text = |name: &str| form(name).unwrap_or_default().trim().to_owned();
        let kind = text("kind");
        let fault = FAULTS.iter().find(|(annotation, _)| short(annotation) == kind);
        let (annotation, _) = fault.ok_or_else(|| format!("kind: there is no fault {kind:?}."))?;
        let place = text("place");
        let is_chosen = |node: &Node| match place.split_once('/') {
            Some(("zone", zone)) => node.meta.labels.get(ZONE) == Some(zone),
            Some(("node", name)) => *node.meta.name == *name,
            _ => *node.meta.name == *place,
        };
        let names: Vec<String> = nodes
            .iter()
            .filter(|node| is_chosen(node))
            .map(|node| node.meta.name.to_string())
            .collect();
        if names.is_empty() {
            return Err(format!(
                "place: there is no node or zone {place:?}. Write the name of a node, or zone/NAME."
            ));
        }
        let value = match (text("action") == "end", text("duration")) {
            (true, _) => None,
            (false, lasts) if lasts.is_empty() => Some(FaultEnd::Open.to_string()),
            (false, lasts) => {
                let lasts = duration(&lasts).map_err(|error| format!("duration: {error}"))?;
                if lasts.is_zero() {
                    return Err("duration: write one above 0, such as 5m.".to_owned());
                }
                Some(FaultEnd::At(next_second(saturating_add(now, lasts))).to_string())
            }
        };
        Ok(Self { nodes: names, annotation, value })
    }

    /// Returns the merge patch of each node.
    pub(crate) fn patch(&self) -> Value {
        json!({"metadata": {"annotations": {self.annotation: self.value}}})
    }
}

/// Returns the Behaviors by name.
pub(crate) fn behaviors(objects: &[Value]) -> Vec<BehaviorRow> {
    let mut rows: Vec<BehaviorRow> = objects.iter().map(behavior).collect();
    rows.sort_by(|a, b| a.link.text.cmp(&b.link.text));
    rows
}

/// Fields of a Behavior's spec that select objects or control the selection.
const SELECTING: [&str; 7] = ["pods", "nodes", "containers", "images", "suspend", "weight", "seed"];

fn behavior(object: &Value) -> BehaviorRow {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let spec = &object["spec"];
    let selected = [
        ("pods", selector(&spec["pods"]["selector"])),
        ("namespaces", words(&spec["pods"]["namespaces"])),
        ("namespaces with", selector(&spec["pods"]["namespaceSelector"])),
        ("nodes", selector(&spec["nodes"]["selector"])),
        ("containers", words(&spec["containers"])),
        ("images", words(&spec["images"])),
    ];
    let mut selects: Vec<String> = selected
        .into_iter()
        .filter(|(_, what)| !what.is_empty())
        .map(|(field, what)| format!("{field} {what}"))
        .collect();
    if selects.is_empty() {
        selects.push("everything".to_owned());
    }
    let fields = spec.as_object().into_iter().flatten();
    let sets = fields.filter(|(field, _)| !SELECTING.contains(&field.as_str())).map(
        |(field, value)| match (field.as_str(), value) {
            ("nodeFaults", Value::Array(faults)) => {
                let text = |fault: &Value, field: &str| {
                    fault[field].as_str().unwrap_or_default().to_owned()
                };
                let one = |fault: &Value| {
                    format!(
                        "{} every {} for {}",
                        text(fault, "kind"),
                        text(fault, "meanTimeBetweenFailures"),
                        text(fault, "meanTimeToRepair")
                    )
                };
                format!("nodes {}", faults.iter().map(one).collect::<Vec<_>>().join(", "))
            }
            (_, Value::Array(points)) => format!("{field} of {} points", points.len()),
            (_, Value::String(text)) => format!("{field} {text}"),
            (_, value) => format!("{field} {value}"),
        },
    );
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let invalid = conditions.find(|it| it["type"] == "Valid" && it["status"] == "False");
    BehaviorRow {
        link: Link::new(name, ObjectPath::of(&BEHAVIORS, "", name).href()),
        selects,
        sets: sets.collect(),
        is_suspended: spec["suspend"] == true,
        invalid: invalid.and_then(|it| it["message"].as_str()).unwrap_or_default().to_owned(),
    }
}

fn words(list: &Value) -> String {
    let words = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    words.collect::<Vec<_>>().join(", ")
}

/// Returns a label selector in the form of kubectl's `-l`.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let terms = selector["matchExpressions"].as_array().into_iter().flatten().map(|term| {
        let key = term["key"].as_str().unwrap_or_default();
        match term["operator"].as_str().unwrap_or_default() {
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            operator => format!("{key} {} ({})", operator.to_lowercase(), words(&term["values"])),
        }
    });
    labels.chain(terms).collect::<Vec<_>>().join(",")
}

impl TimeFacts {
    /// Returns the time, its speed and the remaining time of a jump. `speed` is `None` for the system's time.
    pub(crate) fn new(now: Timestamp, own: Option<(f64, Duration)>, may_change: bool) -> Self {
        let (speed, jump) = own.unwrap_or((1.0, Duration::ZERO));
        let total = jump.as_secs();
        let jump = match total {
            0 => String::new(),
            _ => format!("{}h{:02}m{:02}s", total / 3600, total / 60 % 60, total % 60),
        };
        Self { now: seconds(now), speed, jump, is_adjustable: own.is_some(), may_change }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::decoded;

    fn node(name: &str, zone: &str, annotations: &Value) -> Arc<Node> {
        let object =
            json!({"metadata": {"name": name, "labels": {ZONE: zone}, "annotations": annotations}});
        Arc::new(decoded(&object))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn faults_in_effect_are_listed_with_their_ends() {
        let nodes = [
            node(
                "b",
                "z",
                &json!({SILENT: "until 1970-01-01T00:10:00Z", NOT_READY: "until 1970-01-01T00:01:00Z"}),
            ),
            node("a", "y", &json!({MEMORY_PRESSURE: "true"})),
        ];
        let facts = faults(&NodeFaults::default(), at(300), &nodes);
        let shown: Vec<_> = facts
            .rows
            .iter()
            .map(|row| (&*row.node.text, row.fault, row.until.as_ref().map(|it| &*it.text)))
            .collect();
        assert_eq!(shown, [("a", "memory-pressure", None), ("b", "silent", Some("in 5m"))]);
        assert!(facts.rows.iter().all(|row| row.is_annotated));
        assert_eq!(facts.places, ["zone/y", "zone/z", "a", "b"]);
    }

    #[test]
    fn forms_begin_and_end_faults_of_nodes_and_zones() {
        let nodes =
            [node("a", "y", &json!({})), node("b", "z", &json!({})), node("c", "z", &json!({}))];
        let read = |pairs: &[(&str, &str)]| {
            let form = |name: &str| {
                pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            };
            let duration = |text: &str| match text {
                "5m" => Ok(Duration::from_mins(5)),
                "0s" => Ok(Duration::ZERO),
                _ => Err("no duration".to_owned()),
            };
            FaultChange::of(form, duration, &nodes, at(0))
        };
        let zone =
            read(&[("kind", "silent"), ("place", "zone/z"), ("duration", "5m")]).expect("a change");
        assert_eq!(zone.nodes, ["b", "c"]);
        let until = "until 1970-01-01T00:05:00Z";
        assert_eq!(zone.patch(), json!({"metadata": {"annotations": {SILENT: until}}}));
        let open = read(&[("kind", "not-ready"), ("place", "node/a"), ("duration", " ")])
            .expect("a change");
        assert_eq!(open.patch(), json!({"metadata": {"annotations": {NOT_READY: "true"}}}));
        let end = read(&[("kind", "silent"), ("place", "a"), ("action", "end")]).expect("a change");
        assert_eq!(end.patch(), json!({"metadata": {"annotations": {SILENT: null}}}));
        for (pairs, want) in [
            (&[("kind", "fire"), ("place", "a")][..], "kind: there is no fault \"fire\"."),
            (&[("kind", "silent"), ("place", "zone/x")], "place: there is no node or zone"),
            (&[("kind", "silent"), ("place", "")], "place: there is no node or zone"),
            (&[("kind", "silent"), ("place", "a"), ("duration", "soon")], "duration: no duration"),
            (
                &[("kind", "silent"), ("place", "a"), ("duration", "0s")],
                "duration: write one above 0",
            ),
        ] {
            let error = read(pairs).expect_err(want);
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn behaviors_say_what_they_select_and_set() {
        let objects = [
            json!({
                "metadata": {"name": "slow"},
                "spec": {
                    "suspend": true,
                    "pods": {"selector": {"matchLabels": {"app": "web"}, "matchExpressions": [
                        {"key": "team", "operator": "In", "values": ["a", "b"]}, {"key": "x", "operator": "DoesNotExist"},
                    ]}, "namespaces": ["shop"]},
                    "startDelay": "1s..5s", "exitCode": 3, "cpuCurve": [{"at": "0", "value": "1"}],
                    "nodeFaults": [{"kind": "silent", "meanTimeBetweenFailures": "12h", "meanTimeToRepair": "10m"}],
                },
                "status": {"conditions": [{"type": "Valid", "status": "False", "message": "spec.exitCode: no"}]},
            }),
            json!({"metadata": {"name": "all"}, "spec": {}}),
        ];
        let rows = behaviors(&objects);
        assert_eq!((&*rows[0].link.text, &*rows[0].selects[0]), ("all", "everything"));
        let slow = &rows[1];
        assert_eq!(slow.selects, ["pods app=web,team in (a, b),!x", "namespaces shop"]);
        let mut sets = slow.sets.clone();
        sets.sort();
        let want = [
            "cpuCurve of 1 points",
            "exitCode 3",
            "nodes silent every 12h for 10m",
            "startDelay 1s..5s",
        ];
        assert_eq!(sets, want);
        assert!(slow.is_suspended && !rows[0].is_suspended);
        assert_eq!(slow.invalid, "spec.exitCode: no");
        assert_eq!(slow.link.href, "/object/sim.evenkeel.dev/v1alpha1/behaviors/-/slow");
    }

    #[test]
    fn pages_without_permissions_to_write_have_no_forms() {
        let page = SimulationPage {
            form_token: String::new(),
            time: TimeFacts::new(at(0), Some((60.0, Duration::from_secs(3661))), true),
            refused: vec!["<script>".to_owned()],
            faults: Some(faults(
                &NodeFaults::default(),
                at(0),
                &[node("<script>", "<script>", &json!({SILENT: "true"}))],
            )),
            behaviors: Some(behaviors(&[
                json!({"metadata": {"name": "<script>"}, "spec": {"exitCode": "<script>"}}),
            ])),
        };
        let html = page.render().expect("rendered");
        assert!(!html.contains("<script") && !html.contains("<form"), "{html}");
        assert!(html.contains("1h01m01s"), "{html}");
        let html =
            SimulationPage { form_token: "t".to_owned(), ..page }.render().expect("rendered");
        assert_eq!(html.matches("<form").count(), 5, "{html}");
    }
}
