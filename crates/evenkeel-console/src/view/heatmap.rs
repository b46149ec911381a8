//! Nodes as a heat map: one cell for each node, or one row for each zone above [`MAX_CELLS`] nodes.

use crate::route::ObjectPath;
use askama::Template;
use evenkeel_api::{
    View as _, condition,
    quantity::Quantity,
    time::Timestamp,
    views::{Node, Pod},
};
use evenkeel_component_helpers::resource::pod_requests;
use evenkeel_nodes::{NodeFaults, SILENT};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Maximum number of cells.
pub(crate) const MAX_CELLS: usize = 2000;
/// Maximum number of cells that show their labels.
const MAX_LARGE_CELLS: usize = 60;
/// Maximum number of zones.
const MAX_ZONES: usize = 200;
/// Number of shades, without the shade of an empty node.
const SHADES: u32 = 5;

const ZONE: &str = "topology.kubernetes.io/zone";

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Ready,
    Cordoned,
    NotReady,
    /// The node lifecycle controller receives no heartbeats of the node.
    Unknown,
}

impl State {
    fn of(node: &Node) -> Self {
        match condition::find(&node.status.conditions, "Ready") {
            Some(ready) if &*ready.status == condition::UNKNOWN => Self::Unknown,
            Some(ready) if &*ready.status == condition::TRUE => {
                if node.spec.unschedulable {
                    Self::Cordoned
                } else {
                    Self::Ready
                }
            }
            _ => Self::NotReady,
        }
    }

    /// Returns the class in the style sheet.
    fn class(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Cordoned => "cordoned",
            Self::NotReady => "notready",
            Self::Unknown => "unknown",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Cordoned => "cordoned",
            Self::NotReady => "NotReady",
            Self::Unknown => "Unknown",
        }
    }
}

/// A node of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeCell {
    /// Name of the node.
    pub(crate) name: String,
    /// Page of the node.
    pub(crate) href: String,
    /// State and shade in the style sheet.
    pub(crate) class: String,
    /// State as a word.
    pub(crate) state: &'static str,
    /// Whether the simulation partitions the node from the API server.
    pub(crate) silent: bool,
    /// Number of pods on the node.
    pub(crate) pods: usize,
    /// Highest share of allocatable CPU, memory or pods that is requested, in percent.
    pub(crate) percent: u32,
}

/// A zone of a map without cells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Zone {
    /// Name of the zone, empty for nodes without one.
    pub(crate) name: String,
    /// Number of nodes by state: ready, cordoned, not ready, unknown.
    pub(crate) counts: [usize; 4],
    /// Number of pods on these nodes.
    pub(crate) pods: usize,
    /// Mean of the nodes' highest requested shares, in percent.
    pub(crate) percent: u32,
}

/// Nodes of the cluster.
#[derive(Debug, Clone, Template)]
#[template(path = "heatmap.html")]
pub(crate) struct HeatMap {
    /// Number of nodes.
    pub(crate) total: usize,
    /// Number of Ready nodes, including cordoned ones.
    pub(crate) ready: usize,
    /// Whether cells show their labels.
    pub(crate) large: bool,
    /// Cells, by name of the node. Empty for a large cluster.
    pub(crate) cells: Vec<NodeCell>,
    /// Zones of a large cluster.
    pub(crate) zones: Vec<Zone>,
}

/// Returns the map of nodes and the pods on them, at this time of the cluster.
pub(crate) fn heat_map(
    mut nodes: Vec<Arc<Node>>,
    pods: &[Arc<Pod>],
    faults: &NodeFaults,
    now: Timestamp,
) -> HeatMap {
    nodes.sort_by(|a, b| natural(&a.meta.name).cmp(&natural(&b.meta.name)));
    let mut of_node: HashMap<&str, Vec<&Pod>> = HashMap::new();
    for pod in pods.iter().filter(|pod| !matches!(&*pod.status.phase, "Succeeded" | "Failed")) {
        of_node.entry(&pod.spec.node_name).or_default().push(pod);
    }
    let none = Vec::new();
    let cells = nodes.iter().map(|node| {
        let pods = of_node.get(&*node.meta.name).unwrap_or(&none);
        (node.meta.labels.get(ZONE), State::of(node), cell(node, pods, faults, now))
    });
    let total = nodes.len();
    if total > MAX_CELLS {
        let zones = zones(cells);
        let ready = zones.iter().map(|zone| zone.counts[0] + zone.counts[1]).sum();
        return HeatMap { total, ready, large: false, cells: Vec::new(), zones };
    }
    let (states, cells): (Vec<_>, Vec<_>) = cells.map(|(_, state, cell)| (state, cell)).unzip();
    let ready = states.iter().filter(|state| **state <= State::Cordoned).count();
    HeatMap { total, ready, large: total <= MAX_LARGE_CELLS, cells, zones: Vec::new() }
}

fn cell(node: &Node, pods: &[&Pod], faults: &NodeFaults, now: Timestamp) -> NodeCell {
    let (state, percent) = (State::of(node), requested_percent(node, pods));
    // A shade for each fifth, and one for nodes without requests.
    let shade = (percent.min(100) * SHADES).div_ceil(100);
    NodeCell {
        name: node.meta.name.to_string(),
        href: ObjectPath::of(&Node::kind(), "", &node.meta.name).href(),
        class: format!("{} s{shade}", state.class()),
        state: state.word(),
        silent: faults.fault(node, SILENT, now).is_some(),
        pods: pods.len(),
        percent,
    }
}

/// Returns the highest requested share of allocatable CPU, memory or pods, in percent.
fn requested_percent(node: &Node, pods: &[&Pod]) -> u32 {
    let mut requested: HashMap<&str, f64> = HashMap::new();
    for pod in pods {
        for (resource, amount) in pod_requests(pod, &[]) {
            *requested.entry(resource).or_default() += amount.as_f64();
        }
    }
    requested.insert(
        "pods",
        Quantity::from_units(i64::try_from(pods.len()).unwrap_or(i64::MAX)).as_f64(),
    );
    let share = |resource: &str| {
        let allocatable = node.status.allocatable.get(resource)?.as_f64();
        let requested = requested.get(resource).copied().unwrap_or_default();
        (allocatable > 0.0).then(|| requested / allocatable)
    };
    let highest = ["cpu", "memory", "pods"].into_iter().filter_map(share).fold(0.0, f64::max);
    // Rounded up, so that no used node looks empty. The cast saturates.
    (highest * 100.0).ceil() as u32
}

fn zones<'a>(cells: impl Iterator<Item = (Option<&'a str>, State, NodeCell)>) -> Vec<Zone> {
    let mut zones: BTreeMap<&str, (Zone, u64)> = BTreeMap::new();
    for (name, state, cell) in cells {
        let name = name.unwrap_or_default();
        let (zone, percents) = zones.entry(name).or_default();
        zone.name = name.to_owned();
        zone.counts[state as usize] += 1;
        zone.pods += cell.pods;
        *percents += u64::from(cell.percent);
    }
    let mean = |(mut zone, percents): (Zone, u64)| {
        let nodes = zone.counts.iter().sum::<usize>().max(1);
        zone.percent = u32::try_from(percents / nodes as u64).unwrap_or(u32::MAX);
        zone
    };
    zones.into_values().take(MAX_ZONES).map(mean).collect()
}

/// Returns a key of names that puts `node-2` before `node-10`.
fn natural(name: &str) -> (&str, u64, &str) {
    let head = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (head, name[head.len()..].parse().unwrap_or_default(), name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::Encoding;
    use serde_json::{Value, json};

    fn decoded<V: evenkeel_api::View>(object: &Value) -> Arc<V> {
        Arc::new(V::decode(object.to_string().as_bytes(), Encoding::Json).expect("an object"))
    }

    fn node(name: &str, zone: &str, ready: &str, more: Value) -> Arc<Node> {
        let mut node = json!({
            "metadata": {"name": name, "labels": {ZONE: zone}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        });
        let Value::Object(more) = more else { panic!("no object: {more}") };
        for (key, value) in more {
            node[&key] = value;
        }
        decoded(&node)
    }

    fn now() -> Timestamp {
        "2027-01-15T08:00:00Z".parse().expect("a time")
    }

    fn pod(name: &str, node: &str, cpu: &str) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": name, "namespace": "a"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Running"},
        });
        decoded(&pod)
    }

    #[test]
    fn cells_have_state_and_shade() {
        let none = || json!({});
        let silent = json!({"metadata": {"name": "node-2", "annotations": {"sim.evenkeel.dev/silent": "true"}}});
        let until = |name: &str, end: &str| {
            let annotations = json!({"sim.evenkeel.dev/silent": format!("until {end}")});
            json!({"metadata": {"name": name, "annotations": annotations}})
        };
        let nodes = vec![
            node("node-10", "z", "Unknown", none()),
            node("node-2", "z", "True", silent),
            node("node-1", "z", "True", json!({"spec": {"unschedulable": true}})),
            node("node-3", "z", "False", until("node-3", "2027-01-15T08:00:00Z")),
            node("node-4", "z", "False", until("node-4", "2027-01-15T08:00:01Z")),
        ];
        let pods = [pod("p", "node-2", "1"), pod("q", "node-2", "1"), pod("r", "", "9")];
        let map = heat_map(nodes, &pods, &NodeFaults::default(), now());
        let shown: Vec<_> =
            map.cells.iter().map(|c| (&*c.name, &*c.class, c.pods, c.percent, c.silent)).collect();
        assert_eq!(
            shown,
            [
                ("node-1", "cordoned s0", 0, 0, false),
                ("node-2", "ready s3", 2, 50, true),
                ("node-3", "notready s0", 0, 0, false),
                ("node-4", "notready s0", 0, 0, true),
                ("node-10", "unknown s0", 0, 0, false),
            ]
        );
        assert_eq!((map.total, map.ready, map.large), (5, 2, true));
        let html = map.render().expect("rendered");
        assert!(html.contains("href=\"/object/core/v1/nodes/-/node-2\""), "{html}");
        assert!(html.contains("silent"), "{html}");
    }

    #[test]
    fn a_large_cluster_has_rows_of_zones() {
        let nodes = (0..=MAX_CELLS)
            .map(|n| node(&format!("n-{n}"), if n % 2 == 0 { "a" } else { "b" }, "True", json!({})))
            .collect();
        let map = heat_map(nodes, &[pod("p", "n-0", "1")], &NodeFaults::default(), now());
        assert!(map.cells.is_empty());
        let zones: Vec<_> = map.zones.iter().map(|z| (&*z.name, z.counts, z.pods)).collect();
        assert_eq!(zones, [("a", [1001, 0, 0, 0], 1), ("b", [1000, 0, 0, 0], 0)]);
        assert_eq!((map.total, map.ready), (2001, 2001));
    }
}
