//! The kinds of objects in histories, and bodies of these objects.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::schema;

/// A kind of objects in a namespace.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    /// The schema of a custom resource.
    pub(crate) schema: Option<Value>,
    pub(crate) has_status: bool,
}

/// Group of the custom resources.
pub(crate) const GROUP: &str = "histories.example.com";

/// Custom resources, each with a schema by its number.
const N_CUSTOM: u64 = 10;

const BUILTIN: [(&str, &str, &str, bool); 9] = [
    ("v1", "ConfigMap", "configmaps", false),
    ("v1", "Secret", "secrets", false),
    ("v1", "Service", "services", true),
    ("v1", "Pod", "pods", true),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("batch/v1", "Job", "jobs", true),
    ("coordination.k8s.io/v1", "Lease", "leases", false),
    ("networking.k8s.io/v1", "Ingress", "ingresses", true),
];

/// Returns all kinds.
pub(crate) fn all() -> Vec<Kind> {
    let builtin = BUILTIN.map(|(api_version, kind, plural, has_status)| Kind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        schema: None,
        has_status,
    });
    builtin.into_iter().chain((0..N_CUSTOM).map(custom)).collect()
}

fn custom(number: u64) -> Kind {
    Kind {
        api_version: format!("{GROUP}/v1"),
        kind: format!("Thing{number}"),
        plural: format!("thing{number}s"),
        schema: Some(schema::generate(&mut StdRng::seed_from_u64(number))),
        // Half of them have the subresource.
        has_status: number.is_multiple_of(2),
    }
}

impl Kind {
    /// Returns the path of the objects in a namespace.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let root = if self.api_version == "v1" { "/api/v1" } else { "/apis" };
        let group =
            if self.api_version == "v1" { String::new() } else { format!("/{}", self.api_version) };
        format!("{root}{group}/namespaces/{namespace}/{}", self.plural)
    }

    /// Returns the definition of a custom resource.
    pub(crate) fn definition(&self) -> Option<Value> {
        let schema = self.schema.as_ref()?;
        let subresources = if self.has_status { json!({"status": {}}) } else { json!({}) };
        Some(json!({"metadata": {"name": format!("{}.{GROUP}", self.plural)}, "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": self.plural, "singular": self.kind.to_lowercase(), "kind": self.kind, "listKind": format!("{}List", self.kind)},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources, "schema": {"openAPIV3Schema": schema}}]}}))
    }

    /// Returns a new object with random content.
    pub(crate) fn object(&self, name: &str, rng: &mut StdRng) -> Value {
        let mut object =
            json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}});
        object["metadata"]["labels"] = json!({"color": one(&["red", "blue", "green"], rng)});
        if rng.random_bool(0.3) {
            object["metadata"]["annotations"] = json!({"note": one(&["a", "b", ""], rng)});
        }
        if rng.random_bool(0.2) {
            object["metadata"]["finalizers"] = json!(["example.com/f"]);
        }
        merge(&mut object, &self.content(rng));
        object
    }

    /// Returns all fields of a random object except its metadata.
    fn content(&self, rng: &mut StdRng) -> Value {
        let (number, text) = (rng.random_range(0..4), one(&["a", "b", "c"], rng));
        if let Some(schema) = &self.schema {
            return json!({"spec": schema::sample(&schema["properties"]["spec"], rng)});
        }
        match self.kind.as_str() {
            "ConfigMap" => json!({"data": {text: number.to_string()}}),
            "Secret" => json!({"stringData": {text: number.to_string()}}),
            "Service" => {
                json!({"spec": {"clusterIP": "None", "selector": {"app": text}, "ports": [{"name": "p", "port": 80 + number}]}})
            }
            "Pod" => {
                json!({"spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": text}],
                "nodeName": if number == 0 { json!("n1") } else { Value::Null }}})
            }
            "PersistentVolumeClaim" => {
                json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": text,
                "resources": {"requests": {"storage": format!("{}Gi", number + 1)}}}})
            }
            "Deployment" => {
                json!({"spec": {"replicas": number, "selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": text}]}}}})
            }
            "Job" => {
                json!({"spec": {"parallelism": number, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": text}]}}}})
            }
            "Lease" => {
                json!({"spec": {"holderIdentity": text, "leaseDurationSeconds": 10 + number}})
            }
            _ => {
                json!({"spec": {"defaultBackend": {"service": {"name": text, "port": {"number": 80 + number}}}}})
            }
        }
    }

    /// Returns a random merge patch for an object.
    pub(crate) fn change(&self, rng: &mut StdRng) -> Value {
        match rng.random_range(0..10) {
            0 | 1 => {
                json!({"metadata": {"labels": {"color": one(&["red", "blue", "green"], rng)}}})
            }
            2 => json!({"metadata": {"labels": {one(&["x", "y"], rng): one(&["1", "2"], rng)}}}),
            3 => {
                json!({"metadata": {"annotations": {one(&["note", "other"], rng): one(&["a", "b"], rng)}}})
            }
            4 => json!({"metadata": {"annotations": {"note": null}}}),
            5 => match rng.random_range(0..4) {
                0 => json!({"metadata": {"finalizers": ["example.com/f"]}}),
                1 => json!({"metadata": {"finalizers": ["example.com/f", "example.com/g"]}}),
                2 => json!({"metadata": {"finalizers": null}}),
                _ => json!({"metadata": {"finalizers": []}}),
            },
            6 => {
                json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": one(&["u1", "u2"], rng)}]}})
            }
            _ => self.content(rng),
        }
    }

    /// Returns a random merge patch for the status of an object.
    pub(crate) fn status(&self, rng: &mut StdRng) -> Value {
        let number = rng.random_range(0..4);
        let condition = json!({"type": one(&["A", "B"], rng), "status": one(&["True", "False"], rng),
            "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R", "message": "m"});
        if self.schema.is_some() {
            return json!({"status": {"number": number, "conditions": [condition]}});
        }
        match self.kind.as_str() {
            "Pod" => {
                json!({"status": {"phase": one(&["Pending", "Running", "Failed"], rng), "conditions": [{"type": "Ready", "status": "True"}]}})
            }
            "Service" => json!({"status": {"conditions": [condition]}}),
            "PersistentVolumeClaim" => {
                json!({"status": {"phase": one(&["Pending", "Bound", "Lost"], rng)}})
            }
            "Deployment" => json!({"status": {"replicas": number, "observedGeneration": number}}),
            "Job" => json!({"status": {"active": number, "ready": 0}}),
            _ => {
                json!({"status": {"loadBalancer": {"ingress": [{"ip": format!("10.0.0.{number}")}]}}})
            }
        }
    }
}

/// Returns one of the strings.
pub(crate) fn one(pool: &[&'static str], rng: &mut StdRng) -> &'static str {
    pool.choose(rng).expect("one")
}

/// Merges a part into an object, as a merge patch does.
pub(crate) fn merge(object: &mut Value, part: &Value) {
    let Some(part) = part.as_object() else {
        *object = part.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in part {
        if value.is_null() {
            object.as_object_mut().expect("an object").remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}
