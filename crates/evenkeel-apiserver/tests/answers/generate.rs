//! Requests by seed: an example of a kind, changed in one place or two, written by some verb. All are dry runs.

use http::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::mutate::Mutation;
use crate::parity::servers::Sent;
use crate::schema::Schemas;

/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "parity";

/// Stands for the version of the object that a server has.
pub(crate) const VERSION: &str = "@VERSION@";

/// An example of a kind, and where its objects are.
#[derive(Debug)]
pub(crate) struct Example {
    pub(crate) kind: String,
    pub(crate) collection: String,
    pub(crate) object: Value,
    /// Name of the object of this example that is there.
    pub(crate) base: String,
    pub(crate) has_status: bool,
}

/// How a changed object is sent.
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

/// A request, and what it tries.
pub(crate) struct Attempt {
    pub(crate) seed: u64,
    pub(crate) kind: String,
    pub(crate) verb: Verb,
    pub(crate) class: String,
    pub(crate) sent: Sent,
}

/// The request of a seed.
pub(crate) fn attempt(seed: u64, examples: &[Example], schemas: &Schemas) -> Attempt {
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
    let verb = *all[..n_verbs].choose(&mut rng).expect("a verb");
    let mut object = example.object.clone();
    let name = match verb {
        Create | ApplyNew => object["metadata"]["name"].as_str().unwrap_or("x").to_owned(),
        _ => example.base.clone(),
    };
    object["metadata"]["name"] = name.clone().into();
    let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let empty = json!({"type": "object"});
    let schema = schemas.of_kind(&api_version, &example.kind).unwrap_or(&empty);
    let n_mutations = if rng.random_bool(0.75) { 1 } else { 2 };
    let before = object.clone();
    let mutations: Vec<Mutation> = (0..n_mutations)
        .map(|_| {
            let mutation = Mutation::random(&object, schema, schemas, &mut rng);
            mutation.apply(&mut object);
            mutation
        })
        .collect();
    let class: Vec<String> = mutations.iter().map(Mutation::class).collect();
    let validation = ["Strict", "Strict", "Warn", "Ignore"].choose(&mut rng).expect("one");
    let query = format!("dryRun=All&fieldValidation={validation}");
    let (collection, path) = (&example.collection, format!("{}/{name}", example.collection));
    let json = "application/json";
    let (method, path, media, body) = match verb {
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
    let kind = format!("{api_version} {}", example.kind);
    Attempt { seed, kind, verb, class: class.join(", "), sent: Sent { method, path, media, body } }
}

/// The top-level fields that changed, whole; null where one was removed.
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
