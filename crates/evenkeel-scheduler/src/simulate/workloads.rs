//! Missing pods of workloads, built as their controllers do, limited to the fields that scheduling reads.

use evenkeel_api::{
    Encoding, View,
    selector::Selector,
    views::{Node, Pod, ReplicaSet, StorageClass},
};
use evenkeel_component_helpers::{
    apps::daemonset,
    scheduling::corev1::{self, nodeaffinity},
    storage::volume,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
};

use super::stored;

/// Stands for the pod template hash in names and labels.
const HASH: &str = "simulated";

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
    ("ReplicaSet", "/apis/apps/v1/replicasets"),
    ("StatefulSet", "/apis/apps/v1/statefulsets"),
    ("DaemonSet", "/apis/apps/v1/daemonsets"),
    ("Job", "/apis/batch/v1/jobs"),
];
const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/pods";

/// Objects by list path.
type Objects = BTreeMap<String, Vec<Value>>;

/// Reports whether the kind is a workload.
pub(super) fn is_workload(kind: &str) -> bool {
    KINDS.iter().any(|(known, _)| *known == kind)
}

/// Adds missing pods, with their claims and ReplicaSets. Returns the workloads whose pods were missing.
pub(super) fn add_missing(objects: &mut Objects) -> Vec<Workload> {
    let uids: BTreeSet<String> = KINDS
        .iter()
        .flat_map(|(_, path)| listed(objects, path))
        .map(|object| text(&object["metadata"]["uid"]).to_owned())
        .collect();
    let mut workloads = Vec::new();
    for (kind, path) in KINDS {
        for object in listed(objects, path).to_vec() {
            // The owner's controller creates the pods of this object.
            if controller(&object).is_some_and(|owner| uids.contains(text(&owner["uid"]))) {
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
            objects.entry(KINDS[1].1.to_owned()).or_default().extend(missing.replica_set);
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
fn listed<'a>(objects: &'a Objects, path: &str) -> &'a [Value] {
    objects.get(path).map(Vec::as_slice).unwrap_or_default()
}

/// Decodes an object; `None` if it is invalid.
fn read<V: View>(object: &Value) -> Option<V> {
    V::decode(object.to_string().as_bytes(), Encoding::Json).ok()
}

/// Returns a text; empty if the value is not a text.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the owner reference to the controller.
fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Returns the controller reference to the owner.
fn reference(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": metadata["name"], "uid": metadata["uid"], "controller": true,
    }])
}

/// Reports whether the pod is active: neither finished nor terminating.
fn is_live(pod: &Value) -> bool {
    !matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
        && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Parses the indexes in a Job's status, such as `1,3-5,7`. Ignores what is invalid.
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
            read::<ReplicaSet>(object).map_or_else(Selector::nothing, |read| read.spec.selector);
        let selected = |pod: &Value| {
            let labels = &pod["metadata"]["labels"];
            !selector.is_everything() && selector.matches_by(|key| labels[key].as_str())
        };
        let owned = |pod: &Value| {
            controller(pod).is_some_and(|owner| {
                owner["uid"] == metadata["uid"]
                    || (owner["kind"] == kind && owner["name"] == metadata["name"])
            })
        };
        let pods = listed(objects, PODS).iter();
        let pods = pods.filter(|pod| {
            pod["metadata"]["namespace"] == metadata["namespace"]
                && is_live(pod)
                && (selected(pod) || owned(pod))
        });
        Self { kind, object, pods: pods.cloned().collect() }
    }

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
            "Deployment" => self.of_deployment(),
            "StatefulSet" => self.of_stateful_set(objects),
            "DaemonSet" => self.of_daemon_set(objects),
            "Job" => self.of_job(),
            _ => {
                let count = self.number("replicas", 1).saturating_sub(self.pods.len());
                let names = (0..count).map(|n| format!("{}-{HASH}-{n}", self.name()));
                let pods = names.map(|name| self.pod(&name, self.object)).collect();
                MissingObjects { pods, alike: true, ..MissingObjects::default() }
            }
        }
    }

    /// Creates pods that belong to a new ReplicaSet of the Deployment.
    fn of_deployment(&self) -> MissingObjects {
        let mut set = self.object.clone();
        let name = format!("{}-{HASH}", self.name());
        set["apiVersion"] = "apps/v1".into();
        set["kind"] = "ReplicaSet".into();
        let namespace = &self.object["metadata"]["namespace"];
        let uid = format!("{}/{name}", text(namespace));
        let owners = reference(self.object);
        set["metadata"] =
            json!({"name": name, "namespace": namespace, "uid": uid, "ownerReferences": owners});
        set["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = HASH.into();
        set["spec"]["selector"]["matchLabels"]["pod-template-hash"] = HASH.into();
        let count = self.number("replicas", 1).saturating_sub(self.pods.len());
        let pods = (0..count).map(|n| self.pod(&format!("{name}-{n}"), &set)).collect();
        MissingObjects { pods, replica_set: Some(set), alike: true, ..MissingObjects::default() }
    }

    /// Creates pods with ordinals, and their claims.
    fn of_stateful_set(&self, objects: &Objects) -> MissingObjects {
        let first = self.object["spec"]["ordinals"]["start"].as_u64().unwrap_or_default();
        let templates = &self.object["spec"]["volumeClaimTemplates"];
        let templates = templates.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut missing =
            MissingObjects { alike: templates.is_empty(), ..MissingObjects::default() };
        for n in (first..).take(self.number("replicas", 1)) {
            let name = format!("{}-{n}", self.name());
            if self.pods.iter().any(|pod| pod["metadata"]["name"] == *name) {
                continue;
            }
            let mut pod = self.pod(&name, self.object);
            pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = (*name).into();
            pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = n.to_string().into();
            for template in templates {
                let volume = text(&template["metadata"]["name"]);
                let claim = format!("{volume}-{name}");
                let source = json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}});
                match pod["spec"]["volumes"].as_array_mut() {
                    Some(volumes) => {
                        volumes.retain(|known| known["name"] != *volume);
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
        let is_same = |claim: &Value| {
            claim["metadata"]["name"] == *name && claim["metadata"]["namespace"] == *namespace
        };
        if listed(objects, CLAIMS).iter().any(is_same) {
            return None;
        }
        let mut spec = template["spec"].clone();
        if spec["storageClassName"].is_null() {
            let classes = listed(objects, CLASSES).iter().filter_map(read).map(Arc::new);
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
    fn of_daemon_set(&self, objects: &Objects) -> MissingObjects {
        let mut missing = MissingObjects::default();
        let mut template_pod = self.pod("", self.object);
        daemonset::add_tolerations(&mut template_pod["spec"]);
        let Some(spec) = read::<Pod>(&template_pod).map(|pod| pod.spec) else { return missing };
        let existing: Vec<Pod> = self.pods.iter().filter_map(read).collect();
        let existing: BTreeSet<&str> = existing.iter().filter_map(daemonset::target_node).collect();
        for node in listed(objects, NODES).iter().filter_map(read::<Node>) {
            let name = &*node.meta.name;
            let runs = nodeaffinity::required(&spec, &node)
                && corev1::find_untolerated_taint(&spec.tolerations, &node.spec.taints).is_none();
            if existing.contains(name) || !runs {
                continue;
            }
            let mut pod = self.pod(&format!("{}-{name}", self.name()), self.object);
            daemonset::add_tolerations(&mut pod["spec"]);
            daemonset::only_on(&mut pod["spec"], name);
            missing.pods.push(pod);
        }
        missing
    }

    /// Creates pods up to `parallelism`, but not more than the remaining `completions`. A Job without `completions`
    /// gets no more pods after one succeeded. An Indexed Job gets pods for its first indexes that have not finished.
    fn of_job(&self) -> MissingObjects {
        let (spec, status) = (&self.object["spec"], &self.object["status"]);
        let ended = status["conditions"].as_array().into_iter().flatten().any(|condition| {
            matches!(text(&condition["type"]), "Complete" | "Failed")
                && condition["status"] == "True"
        });
        if ended || spec["suspend"] == true {
            return MissingObjects::default();
        }
        let done = status["succeeded"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let wanted = match (&spec["completions"], &spec["parallelism"]) {
            (Value::Null, Value::Null) => 1_usize.saturating_sub(done),
            (Value::Null, _) if done > 0 => 0,
            (Value::Null, _) => self.number("parallelism", 1),
            _ => self
                .number("parallelism", 1)
                .min(self.number("completions", 1).saturating_sub(done)),
        };
        let index = "batch.kubernetes.io/job-completion-index";
        let taken: BTreeSet<&str> =
            self.pods.iter().map(|pod| text(&pod["metadata"]["annotations"][index])).collect();
        let is_indexed = spec["completionMode"] == "Indexed";
        let names = if is_indexed { 0..self.number("completions", 1) } else { done..usize::MAX };
        let finished: Vec<_> = ["completedIndexes", "failedIndexes"]
            .iter()
            .flat_map(|field| index_ranges(text(&status[*field])))
            .collect();
        let is_finished = |n: &usize| is_indexed && finished.iter().any(|range| range.contains(n));
        let free = names.filter(|n| !taken.contains(&*n.to_string()) && !is_finished(n));
        let pods = free.take(wanted.saturating_sub(self.pods.len())).map(|n| {
            let mut pod = self.pod(&format!("{}-{n}", self.name()), self.object);
            let labels = &mut pod["metadata"]["labels"];
            labels["batch.kubernetes.io/job-name"] = self.name().into();
            labels["job-name"] = self.name().into();
            if is_indexed {
                labels[index] = n.to_string().into();
                pod["metadata"]["annotations"][index] = n.to_string().into();
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
                "ownerReferences": reference(owner),
            },
            "spec": template["spec"], "status": {"phase": "Pending"},
        });
        for field in ["labels", "annotations"] {
            if template["metadata"][field].is_object() {
                pod["metadata"][field] = template["metadata"][field].clone();
            }
        }
        stored::pod(&mut pod);
        pod
    }
}
