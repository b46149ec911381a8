//! Tests of calls to extenders over real connections.

mod preempt;
mod server;
mod tls;

use super::{Extender, ExtenderError, FilteredNodes, SetUpError, set_up, wire};
use crate::{
    SchedulerOptions,
    core::{AttemptResult, Core},
    extender::{ExtenderConfig, ExtenderManagedResource, GoDuration},
    fixtures::{self, at},
};
use evenkeel_runtime::{cache::Caches, client::Client, clock::Clock};
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use server::{Reply, Server};
use std::sync::Arc;

/// Returns a client of a fake API server that returns a full pod for any name, and caches on it.
fn fake_client() -> (Client, Caches) {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let name = request.uri().path().strip_prefix("/api/v1/namespaces/shop/pods/").unwrap();
        let pod = full_pod(name).to_string().into_bytes();
        Ok::<_, std::convert::Infallible>(Response::new(Body::from(pod)))
    });
    let clock = Clock::system();
    let client = Client::new(kube::Client::new(service, "default"), clock.clone());
    let caches = Caches::new(client.clone(), clock, &prometheus::Registry::new());
    (client, caches)
}

/// Returns a pod as the API server returns it. Extenders must get fields such as `dnsPolicy` that the scheduler's cache
/// drops.
fn full_pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"dnsPolicy": "Default"}})
}

/// Returns the configuration of an extender at this URL, with all verbs, weight 3, and a node cache.
fn config(url: String) -> ExtenderConfig {
    ExtenderConfig {
        url_prefix: url,
        filter_verb: "filter".to_owned(),
        prioritize_verb: "prioritize".to_owned(),
        preempt_verb: "preempt".to_owned(),
        bind_verb: "bind".to_owned(),
        weight: 3,
        node_cache_capable: true,
        ..ExtenderConfig::default()
    }
}

/// Builds the extender with this configuration.
fn build(config: ExtenderConfig) -> Result<Arc<Extender>, SetUpError> {
    let (client, caches) = fake_client();
    Ok(set_up(&[config], &client, &caches)?.remove(0))
}

/// Starts a server with these responses, and builds an extender that calls it. Its configuration is `config` as
/// changed by `configure`.
async fn extender(
    configure: impl FnOnce(&mut ExtenderConfig),
    replies: impl IntoIterator<Item = Reply>,
) -> (Arc<Extender>, Server) {
    let server = Server::start(None, replies).await;
    let mut config = config(format!("http://{}/base/", server.address));
    configure(&mut config);
    (build(config).unwrap(), server)
}

fn names(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

#[tokio::test]
async fn filter_prioritize_and_bind_requests_match_upstream() {
    let filtered = json!({"nodenames": ["b"], "FailedNodes": {"a": "no"}, "failedAndUnresolvableNodes": {"c": "never"}, "Error": null});
    let scored = json!([{"Host": "b", "Score": 7}]);
    let replies = [filtered, scored, json!({"Error": ""})].map(Reply::from);
    let (extender, server) = extender(|_| {}, replies).await;
    let pod = fixtures::pod("p", &json!({}));
    let nodes = names(&["a", "b", "c"]);
    let filtered = extender.filter(&pod, &nodes).await.unwrap();
    let reason = |node: &str, reason: &str| [(node.to_owned(), reason.to_owned())].into();
    let expected = FilteredNodes {
        nodes: names(&["b"]),
        failed: reason("a", "no"),
        unresolvable: reason("c", "never"),
    };
    assert_eq!(filtered, expected);
    assert_eq!(extender.prioritize(&pod, &filtered.nodes).await.unwrap(), [("b".to_owned(), 210)]);
    extender.bind(&pod, "b").await.unwrap();
    let sent = server.take_sent();
    let paths: Vec<&str> = sent.iter().map(|request| &*request.path).collect();
    assert_eq!(paths, ["/base/filter", "/base/prioritize", "/base/bind"]);
    assert_eq!(
        sent[0].body,
        json!({"Pod": full_pod("p"), "Nodes": null, "NodeNames": ["a", "b", "c"]})
    );
    let binding = json!({"PodName": "p", "PodNamespace": "shop", "PodUID": "p", "Node": "b"});
    assert_eq!(sent[2].body, binding);
}

#[tokio::test]
async fn bind_error_is_returned() {
    let (extender, _server) = extender(|_| {}, [json!({"Error": "taken"}).into()]).await;
    let error = extender.bind(&fixtures::pod("p", &json!({})), "b").await.unwrap_err();
    assert_eq!(error.to_string(), "taken");
}

#[tokio::test]
async fn each_kind_of_failed_call_has_its_own_error() {
    let unknown = json!({"NodeNames": ["elsewhere"]});
    let replies = [
        Reply::Json(500, json!({})),
        unknown.into(),
        json!("what").into(),
        json!({"error": "no"}).into(),
        Reply::Text(""),
        Reply::Never,
    ];
    let (extender, server) =
        extender(|config| config.http_timeout = GoDuration(300_000_000), replies).await;
    let (pod, nodes) = (fixtures::pod("p", &json!({})), names(&["a"]));
    let mut errors = Vec::new();
    for _ in 0..7 {
        errors.push(extender.filter(&pod, &nodes).await.unwrap_err());
    }
    let url = format!("http://{}/base/filter", server.address);
    assert_eq!(
        errors[0].to_string(),
        format!("failed filter with extender at URL {url}, code 500")
    );
    assert!(matches!(errors[1], ExtenderError::UnknownNode { .. }), "{errors:?}");
    assert!(matches!(errors[2], ExtenderError::InvalidResponse { .. }), "{errors:?}");
    assert!(
        matches!(&errors[3], ExtenderError::ErrorResponse(error) if error == "no"),
        "{errors:?}"
    );
    assert!(matches!(errors[4], ExtenderError::InvalidResponse { .. }), "{errors:?}");
    assert!(matches!(errors[5], ExtenderError::Timeout { .. }), "{errors:?}");
    assert!(
        matches!(errors[6], ExtenderError::Unreachable { .. }),
        "the server closed the connection: {errors:?}"
    );
}

/// Like in Go's `json.Decoder`, keys match in any case, an absent or null field keeps its zero value, and bytes after
/// the first value are ignored.
#[tokio::test]
async fn responses_are_decoded_as_upstream_decodes_them() {
    let replies = [
        Reply::Text("null"),
        Reply::Text(
            r#"[{"host": "a"}, {"Score": 2, "Host": null}, {"HOST": "b", "score": 4}] and more"#,
        ),
        Reply::Text(r#"{"nodeNames": [], "failedNodes": null, "more": {}}{"nodeNames": ["a"]}"#),
    ];
    let (extender, _server) = extender(|_| {}, replies).await;
    let (pod, nodes) = (fixtures::pod("p", &json!({})), names(&["a", "b"]));
    assert_eq!(extender.prioritize(&pod, &nodes).await.unwrap(), []);
    let scores = [("a", 0), ("", 60), ("b", 120)].map(|(node, score)| (node.to_owned(), score));
    assert_eq!(extender.prioritize(&pod, &nodes).await.unwrap(), scores);
    assert_eq!(extender.filter(&pod, &nodes).await.unwrap(), FilteredNodes::default());
}

/// The extender rejects every node. Extenders register no queueing hints, so any event requeues the pod. The attempt
/// does not end with an error.
#[tokio::test]
async fn an_extender_that_returns_no_nodes_and_no_reasons_rejects_the_pod() {
    let replies = [json!({"NodeNames": []}).into()];
    let (extender, _server) = extender(|config| config.preempt_verb.clear(), replies).await;
    let options = SchedulerOptions { extenders: vec![extender], ..SchedulerOptions::default() };
    let mut core = Core::new(&options);
    core.add_or_update_node(&fixtures::node("a", &json!({})), at(0));
    core.add_or_update_pod(&fixtures::pod("p", &json!({})), at(0));
    let attempted = core.schedule_one(at(0)).await.unwrap();
    let AttemptResult::Failed(failure) = attempted.result else {
        panic!("scheduled although no node passed the extender")
    };
    let message = "0/1 nodes are available: preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!((&*failure.message, failure.is_error), (message, false));
    assert_eq!(core.queue_lengths().unschedulable, 1);
    core.add_or_update_node(
        &fixtures::node("a", &json!({"metadata": {"annotations": {"a": "b"}}})),
        at(20),
    );
    assert_eq!(core.queue_lengths().active, 1);
}

#[tokio::test]
async fn an_extender_is_interested_in_pods_with_its_resources() {
    let managed = ExtenderManagedResource { name: "a.b/c".to_owned(), ignored_by_scheduler: false };
    let (extender, _server) = extender(|config| config.managed_resources = vec![managed], []).await;
    let pod_with_limits = |field: &str, limits: Value| {
        let container = json!({"name": "c", "resources": {"limits": limits}});
        fixtures::pod("p", &json!({"spec": {field: [container]}}))
    };
    assert!(extender.is_interested(&pod_with_limits("initContainers", json!({"a.b/c": 1}))));
    assert!(extender.is_interested(&pod_with_limits("containers", json!({"a.b/c": 1}))));
    assert!(!extender.is_interested(&pod_with_limits("containers", json!({"cpu": 1}))));
}

#[test]
fn filter_results_may_contain_full_nodes() {
    let body = br#"{"Nodes":{"items":[{"metadata":{"name":"x"}}]},"NodeNames":null}"#;
    let result = || wire::decode_like_go::<wire::FilterResult>(body).unwrap();
    assert_eq!(result().take_names_in_nodes(), ["x"]);
    assert_eq!(result().take_node_names(), ["x"]);
}
