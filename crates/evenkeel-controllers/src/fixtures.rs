//! Objects for tests.

use evenkeel_api::{
    Encoding, Kind, Meta, OwnerReference, StrMap, View,
    shared::Shared,
    time::{SignedDuration, Timestamp},
    views::{Pod, PodCondition},
};
use evenkeel_runtime::{
    cache::Caches,
    client::Client,
    clock::Clock,
    discovery::{Resource, ServerResources},
    introspect::Description,
    plan::{Outcome, Reply, Target},
    tasks::Tasks,
};
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Arc, time::Duration};

/// The time at which tests begin.
pub(crate) const T0: Timestamp = Timestamp::constant(1_790_000_000, 0);

/// Returns the time this many seconds after [`T0`], or before it if negative.
pub(crate) fn at(seconds: i64) -> Timestamp {
    T0 + SignedDuration::from_secs(seconds)
}

/// Decodes an object from JSON.
#[track_caller]
pub(crate) fn object<V: View>(json: &Value) -> V {
    V::decode(json.to_string().as_bytes(), Encoding::Json).unwrap()
}

/// Returns the owner references of an object that `owner` controls.
pub(crate) fn owned_by<V: View>(owner: &V) -> Shared<OwnerReference> {
    [crate::wire::controller_reference(&Target::of(V::kind(), owner.meta()))].into()
}

/// Returns metadata in the namespace `ns`, created at [`T0`], with the name as uid.
pub(crate) fn meta(name: &str) -> Meta {
    Meta {
        name: name.into(),
        namespace: "ns".into(),
        uid: name.into(),
        resource_version: "1".into(),
        generation: 1,
        creation: Some(T0),
        ..Meta::default()
    }
}

/// Returns labels with this single entry.
pub(crate) fn label(key: &str, value: &str) -> StrMap {
    [(key, value)].into_iter().collect()
}

/// Returns a running pod on a node. The pod is not ready if `ready_since` is `None`.
pub(crate) fn pod(name: &str, ready_since: Option<Timestamp>) -> Pod {
    let mut pod =
        Pod { meta: Meta { labels: label("app", "web"), ..meta(name) }, ..Pod::default() };
    pod.spec.node_name = "node".into();
    pod.status.phase = "Running".into();
    if let Some(since) = ready_since {
        pod.status.conditions = Box::new([PodCondition {
            type_: "Ready".into(),
            status: "True".into(),
            last_transition_time: Some(since),
            ..PodCondition::default()
        }]);
    }
    pod
}

/// Returns a resource of the preferred version of its group, without verbs and sub-resources.
pub(crate) fn resource(kind: Kind) -> Resource {
    Resource {
        kind,
        singular: "".into(),
        verbs: Box::default(),
        short_names: Box::default(),
        categories: Box::default(),
        subresources: Box::default(),
        preferred: true,
    }
}

/// Returns Deployments as a [`resource`].
pub(crate) fn deployments() -> Resource {
    resource(Kind::new("apps", "v1", "Deployment", "deployments", true))
}

/// Returns the outcome of a discovery that finds these resources.
pub(crate) fn discovered(resources: Vec<Resource>) -> Outcome {
    let found = ServerResources { resources, failed: Vec::new() };
    Outcome { reply: Some(Reply::of_resources(Arc::new(found))), ..Outcome::success() }
}

/// Returns the facts, the waits and the children of a description, one per line.
pub(crate) fn description_text(description: &Description) -> String {
    let facts = description.facts.iter().map(|fact| format!("{}: {}", fact.what, fact.value));
    let waits = description.waits.iter().map(|why| format!("waits: {why}"));
    let children = description.children.iter();
    let children = children.map(|child| format!("child: {} {}", child.kind, child.name));
    facts.chain(waits).chain(children).map(|line| line + "\n").collect()
}

/// Returns caches of objects that never change. `lists` are the API server's answers: paths, and the objects there.
/// `declare` returns the caches, which then have these objects. The clock must be paused.
pub(crate) async fn cached<T>(
    lists: impl IntoIterator<Item = (&'static str, Vec<Value>)>,
    declare: impl FnOnce(&Caches) -> T,
) -> T {
    let lists: Arc<Vec<_>> = Arc::new(lists.into_iter().collect());
    let server = tower::service_fn(move |request: Request<Body>| {
        let lists = lists.clone();
        async move {
            let query = request.uri().query().unwrap_or_default();
            // The client then falls back to a list request.
            let is_streaming_list = query.contains("sendInitialEvents");
            if query.contains("watch=") && !is_streaming_list {
                std::future::pending::<()>().await;
            }
            let path = request.uri().path();
            let (code, body) = match lists.iter().find(|(listed, _)| *listed == path) {
                Some((_, items)) if !is_streaming_list => {
                    (200, json!({ "metadata": { "resourceVersion": "7" }, "items": items }))
                }
                _ => (400, json!({ "kind": "Status", "code": 400 })),
            };
            let response =
                Response::builder().status(code).header("content-type", "application/json");
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(response.body(body).unwrap())
        }
    });
    let clock = Clock::starting_at(T0);
    let client = Client::new(kube::Client::new(server, "default"), clock.clone());
    let caches = Caches::new(client, clock, &prometheus::Registry::new());
    let declared = declare(&caches);
    caches.start(&Tasks::new());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(caches.has_synced());
    declared
}
