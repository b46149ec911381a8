//! Histories by seed: a kind, and a sequence of steps on a few objects of it.

use http::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::kinds::{Kind, merge, one};

/// Names of the objects.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Name of the object that ends a history: every watch receives it.
pub(crate) const END: &str = "end";

/// Placeholder of the UID of a server's object.
pub(crate) const UID: &str = "@UID@";
/// Placeholder of its resource version.
pub(crate) const VERSION: &str = "@VERSION@";
/// Placeholder of an older resource version.
pub(crate) const STALE: &str = "@STALE@";

/// A step: an action, and its object.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) verb: &'static str,
    pub(crate) method: Method,
    /// Name of the object; empty for all objects.
    pub(crate) name: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) query: String,
    pub(crate) media: &'static str,
    pub(crate) body: Body,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// A whole object, with UIDs and versions in place of the placeholders.
    Whole(Value),
    /// The object that the server has, changed.
    Changed(Value),
    /// A list of the page after the last one.
    NextPage,
}

impl Step {
    /// Formats the step in one line.
    pub(crate) fn shown(&self) -> String {
        let Self { verb, name, subresource, query, body, .. } = self;
        format!(
            "{verb} {name} {subresource}?{query} {}",
            match body {
                Body::Whole(value) => value.to_string(),
                Body::Changed(change) => format!("with {change}"),
                Body::NextPage => "next page".to_owned(),
            }
        )
    }
}

/// Random history of requests on objects of one kind.
pub(crate) struct History {
    pub(crate) kind: Kind,
    pub(crate) steps: Vec<Step>,
    /// Queries of the watches.
    pub(crate) watches: Vec<String>,
}

/// Returns the history that the generator makes from a seed.
pub(crate) fn history(seed: u64, kinds: &[Kind]) -> History {
    let mut rng = StdRng::seed_from_u64(seed);
    let kind = kinds.choose(&mut rng).expect("a kind").clone();
    let n_steps = rng.random_range(15..40);
    let mut steps: Vec<Step> = vec![create(&kind, "a", &mut rng)];
    while steps.len() < n_steps {
        steps.push(step(&kind, &mut rng));
    }
    let mut end = create(&kind, END, &mut rng);
    let mut object = kind.object(END, &mut StdRng::seed_from_u64(0));
    object["metadata"] = json!({"name": END, "labels": {"color": "red", "x": "1"}});
    if kind.schema.is_some() {
        // The object must be valid for any schema.
        object["spec"] = json!({});
    }
    end.query = String::new();
    end.body = Body::Whole(object);
    steps.push(end);
    let watches = vec![
        String::new(),
        "labelSelector=color%3Dred".to_owned(),
        "labelSelector=x%3D1%2Ccolor".to_owned(),
        "fieldSelector=metadata.name!%3Db".to_owned(),
    ];
    History { kind, steps, watches }
}

fn step(kind: &Kind, rng: &mut StdRng) -> Step {
    let name = NAMES.choose(rng).expect("a name");
    match rng.random_range(0..100) {
        0..18 => create(kind, name, rng),
        18..32 => update(kind, name, rng),
        32..48 => patch(kind, name, rng),
        48..64 => apply(kind, name, rng),
        64..72 if kind.has_status => status(kind, name, rng),
        64..78 => delete(name, rng),
        78..82 => delete_collection(rng),
        82..84 => Step { query: String::new(), ..read("get", name) },
        _ => list(rng),
    }
}

fn query(parts: &[&str], rng: &mut StdRng) -> String {
    let mut parts: Vec<&str> = parts.to_vec();
    if rng.random_bool(0.1) {
        parts.push("dryRun=All");
    }
    if rng.random_bool(0.3) {
        parts.push(one(&["fieldValidation=Strict", "fieldValidation=Ignore"], rng));
    }
    if rng.random_bool(0.1) {
        parts.push("fieldManager=other");
    }
    parts.join("&")
}

fn create(kind: &Kind, name: &'static str, rng: &mut StdRng) -> Step {
    Step {
        verb: "create",
        method: Method::POST,
        name: "",
        subresource: "",
        query: query(&[], rng),
        media: "application/json",
        body: Body::Whole(kind.object(name, rng)),
    }
}

/// Adds a resource version to a change: the current one, an old one, none, or one that never existed.
fn versioned(mut change: Value, rng: &mut StdRng) -> Value {
    let version = match rng.random_range(0..10) {
        0..5 => VERSION.into(),
        5 | 6 => STALE.into(),
        7 => "1".into(),
        _ => Value::Null,
    };
    merge(&mut change, &json!({"metadata": {}}));
    change["metadata"]["resourceVersion"] = version;
    change
}

fn update(kind: &Kind, name: &'static str, rng: &mut StdRng) -> Step {
    let change = if rng.random_bool(0.15) { json!({}) } else { kind.change(rng) };
    Step {
        verb: "update",
        method: Method::PUT,
        name,
        subresource: "",
        query: query(&[], rng),
        media: "application/json",
        body: Body::Changed(versioned(change, rng)),
    }
}

fn patch(kind: &Kind, name: &'static str, rng: &mut StdRng) -> Step {
    let mut change = if rng.random_bool(0.1) { json!({}) } else { kind.change(rng) };
    if rng.random_bool(0.15) {
        change = versioned(change, rng);
    }
    let (verb, media, body) = match rng.random_range(0..3) {
        0 => ("merge patch", "application/merge-patch+json", change),
        1 => ("strategic patch", "application/strategic-merge-patch+json", change),
        _ => {
            let operations = match rng.random_range(0..6) {
                0 => json!([{"op": "add", "path": "/metadata/labels/x", "value": "1"}]),
                1 => json!([{"op": "remove", "path": "/metadata/labels/color"}]),
                2 => json!([{"op": "replace", "path": "/metadata/labels/color", "value": "red"}]),
                3 => {
                    json!([{"op": "test", "path": "/metadata/labels/color", "value": "red"}, {"op": "add", "path": "/metadata/annotations", "value": {"tested": "y"}}])
                }
                4 => {
                    json!([{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/y"}])
                }
                _ => {
                    json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]}])
                }
            };
            ("json patch", "application/json-patch+json", operations)
        }
    };
    Step {
        verb,
        method: Method::PATCH,
        name,
        subresource: "",
        query: query(&[], rng),
        media,
        body: Body::Whole(body),
    }
}

fn apply(kind: &Kind, name: &'static str, rng: &mut StdRng) -> Step {
    let mut object =
        json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}});
    for _ in 0..rng.random_range(0..3) {
        merge(&mut object, &kind.change(rng));
    }
    // Upstream stores the empty lists and maps of applied metadata, which only the next write observes.
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.retain(|_, value| *value != json!({}) && *value != json!([]));
    let manager = one(&["fieldManager=m1", "fieldManager=m2", "fieldManager=m3"], rng);
    let force = one(&["force=true", "force=false", "force=true", ""], rng);
    let mut query = query(&[manager, force], rng).replace("&fieldManager=other", "");
    query = query.trim_end_matches('&').to_owned();
    Step {
        verb: "apply",
        method: Method::PATCH,
        name,
        subresource: "",
        query,
        media: "application/apply-patch+yaml",
        body: Body::Whole(object),
    }
}

fn status(kind: &Kind, name: &'static str, rng: &mut StdRng) -> Step {
    let mut change = kind.status(rng);
    if rng.random_bool(0.3) {
        // Fields that a write of the status ignores.
        merge(&mut change, &kind.change(rng));
    }
    let subresource = "status";
    let query = query(&[], rng);
    match rng.random_range(0..3) {
        0 => Step {
            verb: "update status",
            method: Method::PUT,
            name,
            subresource,
            query,
            media: "application/json",
            body: Body::Changed(versioned(change, rng)),
        },
        1 => Step {
            verb: "patch status",
            method: Method::PATCH,
            name,
            subresource,
            query,
            media: "application/merge-patch+json",
            body: Body::Whole(change),
        },
        _ => {
            merge(
                &mut change,
                &json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}),
            );
            Step {
                verb: "apply status",
                method: Method::PATCH,
                name,
                subresource,
                query: "fieldManager=m4&force=true".to_owned(),
                media: "application/apply-patch+yaml",
                body: Body::Whole(change),
            }
        }
    }
}

fn delete_options(rng: &mut StdRng) -> Value {
    let mut options = json!({});
    if rng.random_bool(0.3) {
        options["gracePeriodSeconds"] = [0, 0, 1, 30].choose(rng).copied().into();
    }
    if rng.random_bool(0.3) {
        options["propagationPolicy"] =
            one(&["Orphan", "Foreground", "Background", "Garbage"], rng).into();
    }
    if rng.random_bool(0.1) {
        options["dryRun"] = json!(["All"]);
    }
    if rng.random_bool(0.05) {
        options["orphanDependents"] = true.into();
    }
    options
}

fn delete(name: &'static str, rng: &mut StdRng) -> Step {
    let mut options = delete_options(rng);
    if rng.random_bool(0.25) {
        options["preconditions"] = match rng.random_range(0..4) {
            0 => json!({"uid": UID}),
            1 => json!({"uid": "00000000-0000-0000-0000-000000000000"}),
            2 => json!({"resourceVersion": VERSION}),
            _ => json!({"resourceVersion": STALE}),
        };
    }
    let body = if options == json!({}) { Value::Null } else { options };
    Step {
        verb: "delete",
        method: Method::DELETE,
        name,
        subresource: "",
        query: one(&["", "", "", "propagationPolicy=Background", "gracePeriodSeconds=0"], rng)
            .to_owned(),
        media: "application/json",
        body: Body::Whole(body),
    }
}

const SELECTORS: [&str; 6] = [
    "",
    "labelSelector=color%3Dred",
    "labelSelector=color!%3Dred",
    "labelSelector=x",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=metadata.name!%3Da",
];

fn delete_collection(rng: &mut StdRng) -> Step {
    let options = delete_options(rng);
    Step {
        verb: "delete collection",
        method: Method::DELETE,
        name: "",
        subresource: "",
        query: one(&SELECTORS, rng).to_owned(),
        media: "application/json",
        body: Body::Whole(if options == json!({}) { Value::Null } else { options }),
    }
}

fn read(verb: &'static str, name: &'static str) -> Step {
    Step {
        verb,
        method: Method::GET,
        name,
        subresource: "",
        query: String::new(),
        media: "",
        body: Body::Whole(Value::Null),
    }
}

fn list(rng: &mut StdRng) -> Step {
    match rng.random_range(0..3) {
        0 => Step { query: one(&SELECTORS, rng).to_owned(), ..read("list", "") },
        1 => Step { query: "limit=1".to_owned(), ..read("page", "") },
        _ => Step { query: "limit=1".to_owned(), body: Body::NextPage, ..read("next page", "") },
    }
}
