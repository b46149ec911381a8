//! Objects of a cluster, read from files.

use crate::clone::{CloneOptions, keep};
use evenkeel_api::{Encoding, View as _, time::Timestamp, views::Node};
use evenkeel_nodes::{NOT_READY, NodeFaults, SILENT};
use evenkeel_scheduler::simulate::{DumpError, read_objects};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// Time at which a run starts if the objects have no times.
const DEFAULT_START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Error of reading the objects of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or folder cannot be read.
    #[error("{}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file holds no objects.
    #[error("{}", path.display())]
    Objects {
        /// File with the objects.
        path: PathBuf,
        /// Reason of the failure.
        source: DumpError,
    },
}

/// Objects of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    objects: Vec<Value>,
}

impl Cluster {
    /// Adds the objects in a file, or in the files of a folder (`.yaml`, `.yml`, `.json`). Objects that a copy leaves out
    /// are left out here, too.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or contains no objects.
    pub fn add_path(&mut self, path: &Path, options: &CloneOptions) -> Result<(), ReadError> {
        let io_error = |source| ReadError::Io { path: path.to_owned(), source };
        if path.is_dir() {
            let mut files = Vec::new();
            for entry in fs::read_dir(path).map_err(io_error)? {
                files.push(entry.map_err(io_error)?.path());
            }
            files.sort();
            let is_manifest = |file: &&PathBuf| {
                let extension = file.extension().and_then(|extension| extension.to_str());
                file.is_file() && matches!(extension, Some("yaml" | "yml" | "json"))
            };
            return files
                .iter()
                .filter(is_manifest)
                .try_for_each(|file| self.add_path(file, options));
        }
        let text = fs::read_to_string(path).map_err(io_error)?;
        self.add(&text, options)
            .map_err(|source| ReadError::Objects { path: path.to_owned(), source })
    }

    /// Adds the objects and lists in a manifest, which is JSON or one or more YAML documents.
    ///
    /// # Errors
    /// Fails as [`read_objects`] does.
    pub fn add(&mut self, text: &str, options: &CloneOptions) -> Result<(), DumpError> {
        let objects = read_objects(text)?;
        self.objects.extend(objects.into_iter().filter_map(|object| keep(object, options)));
        Ok(())
    }

    /// Adds objects of another copy.
    pub(crate) fn extend(&mut self, objects: impl IntoIterator<Item = Value>) {
        self.objects.extend(objects);
    }

    /// Sorts the objects by type, namespace and name.
    pub fn sort(&mut self) {
        self.objects.sort_by_cached_key(|object| {
            ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"]
                .map(|path| text(object, path).to_owned())
        });
    }

    /// Returns the objects.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// Returns the objects as a `List` in JSON, which kubectl reads.
    pub fn to_json(&self) -> String {
        let mut text = "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n".to_owned();
        for (index, object) in self.objects.iter().enumerate() {
            text += if index == 0 { "" } else { ",\n" };
            text += &object.to_string();
        }
        text + "\n]}\n"
    }

    /// Returns the objects for a simulation: with the namespaces that they name, and with silent kubelets on nodes that
    /// are not ready.
    pub fn prepared(&self) -> Vec<Value> {
        prepare(self.objects.clone(), self.time())
    }

    /// Returns the latest time at which an object was created or a condition was written: the time of the copy.
    pub(crate) fn time(&self) -> Timestamp {
        let latest = self.objects.iter().flat_map(times).max();
        latest.unwrap_or(DEFAULT_START)
    }

    /// Returns the ranges of the cluster's Services, if the copy has them.
    pub fn service_ranges(&self) -> Option<String> {
        let found = self.objects.iter().find(|object| {
            object["kind"] == "ServiceCIDR" && text(object, "/metadata/name") == "kubernetes"
        })?;
        let cidrs = found.pointer("/spec/cidrs").and_then(Value::as_array)?;
        Some(cidrs.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
    }
}

/// Adds the namespaces that objects name. Partitions nodes that are not ready, unless an annotation or a Behavior gives them a
/// fault, which ends as it would in the cluster. `now` is the time of the copy.
pub(crate) fn prepare(mut objects: Vec<Value>, now: Timestamp) -> Vec<Value> {
    let is_namespace = |object: &&Value| object["kind"] == "Namespace";
    let mut known: BTreeSet<String> = objects
        .iter()
        .filter(is_namespace)
        .map(|object| text(object, "/metadata/name").to_owned())
        .collect();
    let mut missing = Vec::new();
    for object in &objects {
        let namespace = text(object, "/metadata/namespace");
        if !namespace.is_empty() && known.insert(namespace.to_owned()) {
            missing.push(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {
                    "name": namespace, "labels": { "kubernetes.io/metadata.name": namespace }
                },
                "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
            }));
        }
    }
    objects.extend(missing);
    let faults = NodeFaults::of_objects(objects.iter().filter(|object| is_behavior(object)));
    let is_faulty = |node: &Value| {
        let node = nodes_in([node]).into_iter().next().unwrap_or_default();
        READINESS_FAULTS
            .iter()
            .any(|name| faults.fault(&node, name, now).is_some() || faults.is_drawn(&node, name))
    };
    for node in objects.iter_mut().filter(|object| object["kind"] == "Node") {
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
        let mut ready = conditions.into_iter().flatten().filter(|found| found["type"] == "Ready");
        if ready.any(|condition| condition["status"] != "True") && !is_faulty(node) {
            silence(node);
        }
    }
    objects
}

/// Sets the annotation that partitions a node from the API server.
fn silence(node: &mut Value) {
    let Some(metadata) = fields(node, "metadata") else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    match annotations.as_object_mut() {
        Some(annotations) => drop(annotations.insert(SILENT.to_owned(), "true".into())),
        None => *annotations = json!({ SILENT: "true" }),
    }
}

/// Faults of nodes that change their condition `Ready`.
pub(crate) const READINESS_FAULTS: [&str; 2] = [SILENT, NOT_READY];

/// Returns whether an object is a Behavior.
pub(crate) fn is_behavior(object: &Value) -> bool {
    object["kind"] == "Behavior" && text(object, "/apiVersion").starts_with("sim.evenkeel.dev/")
}

/// Returns the fields of an object within another one; `None` if there is no such object.
pub(crate) fn fields<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(field).and_then(Value::as_object_mut)
}

/// Returns the nodes among objects, without those that cannot be decoded.
pub(crate) fn nodes_in<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Vec<Node> {
    let is_node = |object: &&Value| object["kind"] == "Node" && object["apiVersion"] == "v1";
    let nodes = objects.into_iter().filter(is_node);
    nodes
        .filter_map(|node| Node::decode(node.to_string().as_bytes(), Encoding::Json).ok())
        .collect()
}

/// Returns the string at a path of an object; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the times at which an object was created and its conditions were written.
fn times(object: &Value) -> impl Iterator<Item = Timestamp> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let of_conditions = conditions.into_iter().flatten().flat_map(|condition| {
        [text(condition, "/lastTransitionTime"), text(condition, "/lastHeartbeatTime")]
    });
    let all = [text(object, "/metadata/creationTimestamp")].into_iter().chain(of_conditions);
    all.filter_map(|time| time.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(text: &str) -> Cluster {
        let mut cluster = Cluster::default();
        cluster.add(text, &CloneOptions::default()).unwrap();
        cluster
    }

    #[test]
    fn a_simulation_gets_missing_namespaces_and_silent_nodes() {
        let cluster = cluster(
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: shop}}
---
{apiVersion: v1, kind: Node, metadata: {name: up}, status: {conditions: [{type: Ready, status: 'True'}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: down}, status: {conditions: [{type: Ready, status: Unknown}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: new}}
",
        );
        let objects = cluster.prepared();
        let namespaces = objects.iter().filter(|object| object["kind"] == "Namespace");
        assert_eq!(namespaces.count(), 1);
        assert_eq!(silent(&objects), ["down"]);
    }

    fn silent(objects: &[Value]) -> Vec<&str> {
        let is_silent = |object: &&Value| object["metadata"]["annotations"][SILENT] == "true";
        objects.iter().filter(is_silent).map(|node| text(node, "/metadata/name")).collect()
    }

    #[test]
    fn a_node_with_a_fault_of_its_own_recovers_as_in_the_cluster() {
        let not_ready = |name: &str, pool: &str, annotations: &str| {
            format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{pool: {pool}}}, annotations: {annotations}}},
                  status: {{conditions: [{{type: Ready, status: Unknown, lastTransitionTime: '2026-03-02T00:00:00Z'}}]}}}}\n---\n"
            )
        };
        let text = [
            not_ready(
                "for-an-hour",
                "a",
                "{sim.evenkeel.dev/silent: 'until 2026-03-02T01:00:00Z'}",
            ),
            not_ready(
                "not-any-more",
                "a",
                "{sim.evenkeel.dev/silent: 'until 2026-03-01T01:00:00Z'}",
            ),
            not_ready("not-ready", "a", "{sim.evenkeel.dev/not-ready: 'true'}"),
            not_ready("by-behavior", "b", "{}"),
            not_ready("odd", "a", "null"),
            "{apiVersion: sim.evenkeel.dev/v1alpha1, kind: Behavior, metadata: {name: x}, spec: {
              nodes: {selector: {matchLabels: {pool: b}}},
              nodeFaults: [{kind: silent, meanTimeBetweenFailures: 1h, meanTimeToRepair: 1h}]}}"
                .to_owned(),
        ];
        assert_eq!(silent(&cluster(&text.concat()).prepared()), ["not-any-more", "odd"]);
    }

    #[test]
    fn the_time_of_a_copy_is_that_of_its_latest_condition() {
        let cluster = cluster(
            "{apiVersion: v1, kind: Node, metadata: {name: a, creationTimestamp: '2026-03-01T00:00:00Z'},
              status: {conditions: [{type: Ready, lastHeartbeatTime: '2026-03-02T00:00:00Z'}]}}",
        );
        assert_eq!(cluster.time().to_string(), "2026-03-02T00:00:00Z");
        assert_eq!(Cluster::default().time().to_string(), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn a_copy_is_read_back_as_written() {
        let cluster = cluster(
            "{apiVersion: v1, kind: Node, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: b}}",
        );
        assert_eq!(super::tests::cluster(&cluster.to_json()).objects(), cluster.objects());
    }
}
