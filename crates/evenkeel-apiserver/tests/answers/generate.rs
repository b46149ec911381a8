//! Requests by seed: each writes an example of a kind with one or two changes, by a random verb. All are dry runs.
//!
//! The wide reach also writes subresources, and fills fields that the examples lack.

use http::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::mutate::Mutation;
use crate::parity::servers::Sent;
use crate::schema::Schemas;
use crate::wide;

/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "parity";

/// Placeholder of a server's resource version of the object.
pub(crate) const VERSION: &str = "@VERSION@";

/// An example of a kind, and where its objects are.
#[derive(Debug)]
pub(crate) struct Example {
    pub(crate) kind: String,
    pub(crate) collection: String,
    pub(crate) object: Value,
    /// Name of the existing object of this example.
    pub(crate) base: String,
    pub(crate) has_status: bool,
    /// Subresources other than status that accept writes.
    pub(crate) parts: Vec<Part>,
}

/// A subresource that accepts writes.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    /// Body of the write; `None` for the object itself.
    pub(crate) body: Option<Value>,
}

/// Scope of a run's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Changes objects and their status, only in fields that the examples have.
    Narrow,
    /// All subresources, too, and fields that the examples lack.
    Wide,
}

impl Example {
    fn api_version(&self) -> &str {
        self.object["apiVersion"].as_str().unwrap_or_default()
    }
}

impl Part {
    /// Returns the subresource of this name; `None` if examples cannot be written to it.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let body = match name {
            "resize" | "ephemeralcontainers" | "approval" | "finalize" => None,
            "scale" => Some(json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": "x"}, "spec": {"replicas": 3}, "status": {"replicas": 1}})),
            "binding" => Some(json!({"apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": "x", "annotations": {"a": "b"}, "labels": {"c": "d"}},
                "target": {"kind": "Node", "name": "n"}})),
            "eviction" => Some(json!({"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": "x"}, "deleteOptions": {"gracePeriodSeconds": 3}})),
            "token" => Some(json!({"apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest", "metadata": {"name": "x"},
                "spec": {"audiences": ["a"], "expirationSeconds": 3600}})),
            _ => return None,
        };
        Some(Self { name: name.to_owned(), body })
    }

    /// Returns whether the only write is a POST.
    fn creates(&self) -> bool {
        matches!(&*self.name, "binding" | "eviction" | "token")
    }
}

/// Verb that writes a changed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Create,
    Update,
    UpdateStatus,
    JsonPatch,
    MergePatch,
    StrategicPatch,
    Apply,
    ApplyNew,
}

/// A generated request, with the change that it makes.
pub(crate) struct Attempt {
    pub(crate) seed: u64,
    pub(crate) kind: String,
    pub(crate) verb: Verb,
    pub(crate) class: String,
    /// Path of the object that has the version.
    pub(crate) object_path: String,
    pub(crate) sent: Sent,
}

/// Returns the request that the generator makes from a seed.
pub(crate) fn attempt(seed: u64, reach: Reach, examples: &[Example], schemas: &Schemas) -> Attempt {
    use Verb::{
        Apply, ApplyNew, Create, JsonPatch, MergePatch, StrategicPatch, Update, UpdateStatus,
    };
    let mut rng = StdRng::seed_from_u64(seed);
    let example = examples.choose(&mut rng).expect("examples");
    let all = [
        Create,
        Create,
        Create,
        Update,
        Update,
        JsonPatch,
        MergePatch,
        StrategicPatch,
        Apply,
        ApplyNew,
        UpdateStatus,
        UpdateStatus,
    ];
    let n_verbs = if example.has_status { all.len() } else { all.len() - 2 };
    let is_part = reach == Reach::Wide && rng.random_bool(0.35);
    let part = if is_part { example.parts.choose(&mut rng) } else { None };
    let verb = match part {
        Some(part) if part.creates() => Create,
        Some(_) => *[Update, Update, JsonPatch, MergePatch, StrategicPatch, Apply]
            .choose(&mut rng)
            .expect("a verb"),
        None => *all[..n_verbs].choose(&mut rng).expect("a verb"),
    };
    let body = part.and_then(|part| part.body.as_ref());
    let mut object = body.unwrap_or(&example.object).clone();
    let name = match verb {
        Create | ApplyNew if part.is_none() => {
            object["metadata"]["name"].as_str().unwrap_or("x").to_owned()
        }
        _ => example.base.clone(),
    };
    object["metadata"]["name"] = name.clone().into();
    let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let empty = json!({"type": "object"});
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let schema = schemas.of_kind(&api_version, &kind).unwrap_or(&empty);
    let n_mutations = if rng.random_bool(0.75) { 1 } else { 2 };
    let before = object.clone();
    let mut mutations: Vec<Mutation> = Vec::new();
    if reach == Reach::Wide && rng.random_bool(0.6) {
        mutations = wide::filled(&object, schema, schemas, &mut rng);
        mutations.iter().for_each(|mutation| mutation.apply(&mut object));
    }
    if mutations.is_empty() {
        for _ in 0..n_mutations {
            let mutation = Mutation::random(&object, schema, schemas, &mut rng);
            mutation.apply(&mut object);
            mutations.push(mutation);
        }
    }
    let class: Vec<String> = mutations.iter().map(Mutation::class).collect();
    let validation = ["Strict", "Strict", "Warn", "Ignore"].choose(&mut rng).expect("one");
    let query = format!("dryRun=All&fieldValidation={validation}");
    let (collection, object_path) = (&example.collection, format!("{}/{name}", example.collection));
    let path = match part {
        Some(part) => format!("{object_path}/{}", part.name),
        None => object_path.clone(),
    };
    let json = "application/json";
    let (method, path, media, body) = match verb {
        Create if part.is_some() => (Method::POST, format!("{path}?{query}"), json, object),
        Create => (Method::POST, format!("{collection}?{query}"), json, object),
        Update | UpdateStatus => {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.entry("resourceVersion").or_insert_with(|| VERSION.into());
            }
            let part = if verb == UpdateStatus { "/status" } else { "" };
            (Method::PUT, format!("{path}{part}?{query}"), json, object)
        }
        JsonPatch => {
            let operations: Value = mutations.iter().map(Mutation::operation).collect();
            (Method::PATCH, format!("{path}?{query}"), "application/json-patch+json", operations)
        }
        MergePatch => (
            Method::PATCH,
            format!("{path}?{query}"),
            "application/merge-patch+json",
            changed(&before, &object),
        ),
        StrategicPatch => (
            Method::PATCH,
            format!("{path}?{query}"),
            "application/strategic-merge-patch+json",
            changed(&before, &object),
        ),
        Apply | ApplyNew => {
            let path = format!("{path}?{query}&fieldManager=parity&force=true");
            (Method::PATCH, path, "application/apply-patch+yaml", object)
        }
    };
    let kind = match part {
        Some(part) => format!("{} {}/{}", example.api_version(), example.kind, part.name),
        None => format!("{api_version} {}", example.kind),
    };
    let sent = Sent { method, path, media, body };
    Attempt { seed, kind, verb, class: class.join(", "), object_path, sent }
}

/// Returns the whole top-level fields that differ. A removed field is null.
fn changed(before: &Value, after: &Value) -> Value {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return after.clone();
    };
    let mut patch = serde_json::Map::new();
    for (name, value) in after.iter().filter(|(name, value)| before.get(*name) != Some(value)) {
        patch.insert(name.clone(), value.clone());
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}
