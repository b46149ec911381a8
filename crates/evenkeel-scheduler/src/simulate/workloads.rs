//! Missing pods of workloads, built like their controllers build them. Only fields that scheduling reads are set.

use evenkeel_api::{
    Encoding, View,
    selector::Selector,
    template::HASH_LABEL,
    views::{Node, Pod, ReplicaSet, StorageClass},
};
use evenkeel_component_helpers::{
    apps::daemonset,
    scheduling::corev1::{TolerationOperators, nodeaffinity},
    storage::volume,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
};

use super::defaults;

/// Text that stands for the pod template hash in names and labels.
const POD_TEMPLATE_HASH: &str = "simulated";

/// Label and annotation of an indexed Job's pods.
///
/// Upstream: `JobCompletionIndexAnnotation`.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A workload whose pods were missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Kind of the workload, for example `Deployment`.
    pub kind: &'static str,
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// Uids of the pods that were added.
    pub pods: Vec<String>,
    /// Whether the added pods differ only by name. If one of them does not fit, the others do not fit either.
    pub alike: bool,
}

/// Kinds with their list paths. A kind may own objects of the kinds after it.
const KINDS: [(&str, &str); 5] = [
    ("Deployment", "/apis/apps/v1/deployments"),
    ("ReplicaSet", REPLICA_SETS),
    ("StatefulSet", "/apis/apps/v1/statefulsets"),
    ("DaemonSet", "/apis/apps/v1/daemonsets"),
    ("Job", "/apis/batch/v1/jobs"),
];

/// List path of ReplicaSets.
const REPLICA_SETS: &str = "/apis/apps/v1/replicasets";
/// List path of PersistentVolumeClaims.
const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
/// List path of StorageClasses.
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
/// List path of nodes.
const NODES: &str = "/api/v1/nodes";
/// List path of pods.
const PODS: &str = "/api/v1/pods";

/// Objects by list path.
type Objects = BTreeMap<String, Vec<Value>>;

/// Returns whether the kind is a workload.
pub(super) fn is_workload(kind: &str) -> bool {
    KINDS.iter().any(|(workload_kind, _)| *workload_kind == kind)
}

/// Adds missing pods, with their claims and ReplicaSets. Returns the workloads whose pods were missing.
pub(super) fn add_missing(objects: &mut Objects) -> Vec<Workload> {
    let uids: BTreeSet<String> = KINDS
        .iter()
        .flat_map(|(_, path)| objects_at(objects, path))
        .map(|object| text(&object["metadata"]["uid"]).to_owned())
        .collect();
    let mut workloads = Vec::new();
    for (kind, path) in KINDS {
        for object in objects_at(objects, path).to_vec() {
            // The owner's controller creates the pods of this object.
            if controller_of(&object).is_some_and(|owner| uids.contains(text(&owner["uid"]))) {
                continue;
            }
            let missing = Owner::new(kind, &object, objects).missing_objects(objects);
            if missing.pods.is_empty() {
                continue;
            }
            let metadata = &object["metadata"];
            workloads.push(Workload {
                kind,
                namespace: text(&metadata["namespace"]).to_owned(),
                name: text(&metadata["name"]).to_owned(),
                pods: missing
                    .pods
                    .iter()
                    .map(|pod| text(&pod["metadata"]["uid"]).to_owned())
                    .collect(),
                alike: missing.alike,
            });
            objects.entry(PODS.to_owned()).or_default().extend(missing.pods);
            objects.entry(CLAIMS.to_owned()).or_default().extend(missing.claims);
            objects.entry(REPLICA_SETS.to_owned()).or_default().extend(missing.replica_set);
        }
    }
    workloads
}

/// Objects that a controller would create, and whether the pods differ only by name.
#[derive(Default)]
struct MissingObjects {
    pods: Vec<Value>,
    claims: Vec<Value>,
    replica_set: Option<Value>,
    alike: bool,
}

/// A workload with its active pods.
struct Owner<'a> {
    kind: &'static str,
    object: &'a Value,
    /// Active pods, which are neither finished nor terminating.
    pods: Vec<Value>,
}

/// Returns the objects with this list path.
fn objects_at<'a>(objects: &'a Objects, path: &str) -> &'a [Value] {
    objects.get(path).map(Vec::as_slice).unwrap_or_default()
}

/// Decodes an object. Returns `None` if it is invalid.
fn decode<V: View>(object: &Value) -> Option<V> {
    V::decode(object.to_string().as_bytes(), Encoding::Json).ok()
}

/// Returns the content of a JSON string, and an empty string for other values.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the owner reference to the controller.
fn controller_of(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Returns the controller reference to the owner.
fn controller_reference(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": metadata["name"], "uid": metadata["uid"], "controller": true,
    }])
}

/// Returns whether the pod is active: neither finished nor terminating.
fn is_active(pod: &Value) -> bool {
    !matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
        && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Parses the indexes in a Job's status, such as `1,3-5,7`. Ignores invalid parts.
fn index_ranges(indexes: &str) -> impl Iterator<Item = RangeInclusive<usize>> {
    indexes.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    })
}

impl<'a> Owner<'a> {
    fn new(kind: &'static str, object: &'a Value, objects: &Objects) -> Self {
        let metadata = &object["metadata"];
        // All workload kinds have their selector at the same path as a ReplicaSet.
        let selector =
            decode::<ReplicaSet>(object).map_or_else(Selector::nothing, |set| set.spec.selector);
        let is_selected = |pod: &Value| {
            let labels = &pod["metadata"]["labels"];
            !selector.is_everything() && selector.matches_by(|key| labels[key].as_str())
        };
        let is_owned = |pod: &Value| {
            controller_of(pod).is_some_and(|owner| {
                owner["uid"] == metadata["uid"]
                    || (owner["kind"] == kind && owner["name"] == metadata["name"])
            })
        };
        let pods = objects_at(objects, PODS).iter();
        let pods = pods.filter(|pod| {
            pod["metadata"]["namespace"] == metadata["namespace"]
                && is_active(pod)
                && (is_selected(pod) || is_owned(pod))
        });
        Self { kind, object, pods: pods.cloned().collect() }
    }

    /// Returns the name of the workload.
    fn name(&self) -> &'a str {
        text(&self.object["metadata"]["name"])
    }

    /// Returns a number in the workload's spec.
    fn number(&self, field: &str, default: usize) -> usize {
        let number = self.object["spec"][field].as_u64();
        number.and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
    }

    /// Returns the pods that the workload's controller would create, and objects that they need.
    fn missing_objects(&self, objects: &Objects) -> MissingObjects {
        match self.kind {
            "Deployment" => self.missing_deployment_objects(),
            "StatefulSet" => self.missing_stateful_set_objects(objects),
            "DaemonSet" => self.missing_daemon_set_objects(objects),
            "Job" => self.missing_job_objects(),
            _ => {
                let count = self.number("replicas", 1).saturating_sub(self.pods.len());
                let names =
                    (0..count).map(|index| format!("{}-{POD_TEMPLATE_HASH}-{index}", self.name()));
                let pods = names.map(|name| self.pod(&name, self.object)).collect();
                MissingObjects { pods, alike: true, ..MissingObjects::default() }
            }
        }
    }

    /// Creates pods that belong to a new ReplicaSet of the Deployment.
    fn missing_deployment_objects(&self) -> MissingObjects {
        let mut set = self.object.clone();
        let name = format!("{}-{POD_TEMPLATE_HASH}", self.name());
        set["apiVersion"] = "apps/v1".into();
        set["kind"] = "ReplicaSet".into();
        let namespace = &self.object["metadata"]["namespace"];
        let uid = format!("{}/{name}", text(namespace));
        let owner_references = controller_reference(self.object);
        set["metadata"] = json!({"name": name, "namespace": namespace, "uid": uid, "ownerReferences": owner_references});
        set["spec"]["template"]["metadata"]["labels"][HASH_LABEL] = POD_TEMPLATE_HASH.into();
        set["spec"]["selector"]["matchLabels"][HASH_LABEL] = POD_TEMPLATE_HASH.into();
        let count = self.number("replicas", 1).saturating_sub(self.pods.len());
        let pods = (0..count).map(|index| self.pod(&format!("{name}-{index}"), &set)).collect();
        MissingObjects { pods, replica_set: Some(set), alike: true, ..MissingObjects::default() }
    }

    /// Creates pods with ordinals, and their claims.
    fn missing_stateful_set_objects(&self, objects: &Objects) -> MissingObjects {
        let first = self.object["spec"]["ordinals"]["start"].as_u64().unwrap_or_default();
        let templates = &self.object["spec"]["volumeClaimTemplates"];
        let templates = templates.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut missing =
            MissingObjects { alike: templates.is_empty(), ..MissingObjects::default() };
        for ordinal in (first..).take(self.number("replicas", 1)) {
            let name = format!("{}-{ordinal}", self.name());
            if self.pods.iter().any(|pod| pod["metadata"]["name"] == *name) {
                continue;
            }
            let mut pod = self.pod(&name, self.object);
            pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = (*name).into();
            pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
            for template in templates {
                let volume = text(&template["metadata"]["name"]);
                let claim = format!("{volume}-{name}");
                let source = json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}});
                // The claim replaces a volume of the same name.
                match pod["spec"]["volumes"].as_array_mut() {
                    Some(volumes) => {
                        volumes.retain(|existing| existing["name"] != *volume);
                        volumes.push(source);
                    }
                    None => pod["spec"]["volumes"] = json!([source]),
                }
                missing.claims.extend(self.claim(&claim, template, objects));
            }
            missing.pods.push(pod);
        }
        missing
    }

    /// Returns a claim built from the template, or `None` if the claim exists.
    fn claim(&self, name: &str, template: &Value, objects: &Objects) -> Option<Value> {
        let namespace = &self.object["metadata"]["namespace"];
        let has_name = |claim: &Value| {
            claim["metadata"]["name"] == *name && claim["metadata"]["namespace"] == *namespace
        };
        if objects_at(objects, CLAIMS).iter().any(has_name) {
            return None;
        }
        let mut spec = template["spec"].clone();
        if spec["storageClassName"].is_null() {
            let classes =
                objects_at(objects, STORAGE_CLASSES).iter().filter_map(decode).map(Arc::new);
            let classes: Vec<Arc<StorageClass>> = classes.collect();
            let class = volume::default_class(&classes);
            spec["storageClassName"] = class.map_or(Value::Null, |class| (*class.meta.name).into());
        }
        let uid = format!("{}/{name}", text(namespace));
        Some(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "spec": spec, "status": {"phase": "Pending"},
        }))
    }

    /// Creates a pod for each node that the template's affinity selects and whose taints it tolerates.
    fn missing_daemon_set_objects(&self, objects: &Objects) -> MissingObjects {
        let mut missing = MissingObjects::default();
        let mut template_pod = self.pod("", self.object);
        daemonset::add_tolerations(&mut template_pod["spec"]);
        let Some(spec) = decode::<Pod>(&template_pod).map(|pod| pod.spec) else { return missing };
        let pods: Vec<Pod> = self.pods.iter().filter_map(decode).collect();
        let nodes_with_pod: BTreeSet<&str> =
            pods.iter().filter_map(daemonset::target_node).collect();
        for node in objects_at(objects, NODES).iter().filter_map(decode::<Node>) {
            let name = &*node.meta.name;
            let is_eligible = nodeaffinity::matches_required(&spec, &node)
                && TolerationOperators::default()
                    .find_untolerated_taint(&spec.tolerations, &node.spec.taints)
                    .is_none();
            if nodes_with_pod.contains(name) || !is_eligible {
                continue;
            }
            let mut pod = self.pod(&format!("{}-{name}", self.name()), self.object);
            daemonset::add_tolerations(&mut pod["spec"]);
            daemonset::restrict_to_node(&mut pod["spec"], name);
            missing.pods.push(pod);
        }
        missing
    }

    /// Creates pods up to `parallelism`, but not more than the remaining `completions`. A Job without `completions`
    /// gets no more pods after one succeeded. An Indexed Job gets pods for its first indexes that have not finished.
    fn missing_job_objects(&self) -> MissingObjects {
        let spec = &self.object["spec"];
        let status = &self.object["status"];
        let is_finished_job =
            status["conditions"].as_array().into_iter().flatten().any(|condition| {
                matches!(text(&condition["type"]), "Complete" | "Failed")
                    && condition["status"] == "True"
            });
        if is_finished_job || spec["suspend"] == true {
            return MissingObjects::default();
        }
        let succeeded = status["succeeded"].as_u64();
        let succeeded = succeeded.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let target_count = match (&spec["completions"], &spec["parallelism"]) {
            (Value::Null, Value::Null) => 1_usize.saturating_sub(succeeded),
            (Value::Null, _) if succeeded > 0 => 0,
            (Value::Null, _) => self.number("parallelism", 1),
            _ => {
                let remaining = self.number("completions", 1).saturating_sub(succeeded);
                self.number("parallelism", 1).min(remaining)
            }
        };
        let annotations = self.pods.iter().map(|pod| &pod["metadata"]["annotations"]);
        let used_indexes: BTreeSet<&str> =
            annotations.map(|annotations| text(&annotations[COMPLETION_INDEX])).collect();
        let is_indexed = spec["completionMode"] == "Indexed";
        // The pods of other Jobs need numbers only for their names.
        let indexes =
            if is_indexed { 0..self.number("completions", 1) } else { succeeded..usize::MAX };
        let finished_ranges: Vec<_> = ["completedIndexes", "failedIndexes"]
            .iter()
            .flat_map(|field| index_ranges(text(&status[*field])))
            .collect();
        let is_finished_index =
            |index: &usize| is_indexed && finished_ranges.iter().any(|range| range.contains(index));
        let free_indexes = indexes.filter(|index| {
            !used_indexes.contains(&*index.to_string()) && !is_finished_index(index)
        });
        let pods = free_indexes.take(target_count.saturating_sub(self.pods.len())).map(|index| {
            let mut pod = self.pod(&format!("{}-{index}", self.name()), self.object);
            let labels = &mut pod["metadata"]["labels"];
            labels["batch.kubernetes.io/job-name"] = self.name().into();
            labels["job-name"] = self.name().into();
            if is_indexed {
                labels[COMPLETION_INDEX] = index.to_string().into();
                pod["metadata"]["annotations"][COMPLETION_INDEX] = index.to_string().into();
            }
            pod
        });
        MissingObjects { pods: pods.collect(), alike: true, ..MissingObjects::default() }
    }

    /// Creates a pod from the owner's template.
    fn pod(&self, name: &str, owner: &Value) -> Value {
        let template = &owner["spec"]["template"];
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": self.object["metadata"]["namespace"],
                "ownerReferences": controller_reference(owner),
            },
            "spec": template["spec"], "status": {"phase": "Pending"},
        });
        for field in ["labels", "annotations"] {
            if template["metadata"][field].is_object() {
                pod["metadata"][field] = template["metadata"][field].clone();
            }
        }
        defaults::set_pod_defaults(&mut pod);
        pod
    }
}
