//! Tests of a client with scripted responses of a server.

use super::{ApiError, Client, DeleteOptions, ListOptions, Metadata};
use crate::{
    clock::Clock,
    discovery::FailedGroup,
    plan::PatchType,
    scripted::{Answer, Script, Tail},
};
use bytes::Bytes;
use evenkeel_api::Kind;
use std::{sync::Arc, time::Duration};

const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

fn clock() -> Clock {
    Clock::starting_at(jiff::Timestamp::UNIX_EPOCH)
}

/// Returns a 429 with `Retry-After: 2`.
fn busy() -> Answer {
    Answer::new(429, r#"{"kind":"Status","reason":"TooManyRequests","code":429}"#)
        .header("retry-after", "2")
}

fn pod() -> Answer {
    Answer::new(201, r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"7"}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_write_is_retried_while_responses_have_retry_after() {
    let script = Script::new([busy(), busy(), pod()]);
    let registry = prometheus::Registry::new();
    let client = Client::builder(script.kube(), clock())
        .registry(&registry)
        .host("h")
        .user_agent("evenkeel")
        .build();
    let start = Clock::system().instant();
    let made: Metadata = client
        .with_user_agent("replicaset")
        .create(&PODS, "ns", Bytes::from_static(b"{}"))
        .await
        .unwrap();
    assert_eq!(made.meta.version(), 7);
    assert_eq!(start.elapsed(), Duration::from_secs(4));
    assert_eq!(script.seen(), ["POST /api/v1/namespaces/ns/pods"; 3]);
    let headers = script.headers(2);
    assert_eq!(headers["user-agent"], "evenkeel/replicaset");
    assert_eq!(headers["content-type"], "application/json");
    let shown = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        r#"rest_client_requests_total{code="201",host="h",method="POST"} 1"#,
        r#"rest_client_requests_total{code="429",host="h",method="POST"} 2"#,
        r#"rest_client_request_retries_total{code="429",host="h",verb="POST"} 1"#,
        r#"rest_client_request_duration_seconds_count{host="h",verb="POST"} 1"#,
        r#"rest_client_request_size_bytes_sum{host="h",verb="POST"} 6"#,
        r#"rest_client_response_size_bytes_count{host="h",verb="POST"} 1"#,
    ] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn responses_can_be_requested_without_protobuf() {
    let script = Script::new([pod(), pod()]);
    for (json, accept) in [
        (false, "application/vnd.kubernetes.protobuf;as="),
        (true, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json;q="),
    ] {
        let client = Client::builder(script.kube(), clock()).json(json).build();
        client.get_metadata(&PODS, "ns", "a").await.unwrap();
        let sent = script.headers(usize::from(json));
        assert!(sent["accept"].to_str().unwrap().starts_with(accept), "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_fails_after_ten_retries() {
    let script = Script::new(std::iter::repeat_with(busy).take(20));
    let error = script.client(&clock()).get_metadata(&PODS, "ns", "a").await.unwrap_err();
    assert!(error.is_too_many_requests());
    assert_eq!(script.seen().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn an_error_without_retry_after_is_not_retried() {
    let script = Script::new([Answer::new(503, "go away"), pod()]);
    let error = script.client(&clock()).get_metadata(&PODS, "ns", "a").await.unwrap_err();
    assert_eq!((error.code(), error.to_string().as_str()), (503, "go away"));
    assert_eq!(script.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_truncated_body_is_a_transport_error() {
    let script = Script::new([pod().tail(Tail::Break)]);
    let error = script.client(&clock()).get_metadata(&PODS, "ns", "a").await.unwrap_err();
    assert!(matches!(error, ApiError::Transport { .. }), "{error:?}");
    assert_eq!(error.code(), 0);
}

/// A server, or a proxy before it, may never end a body, of an object or of an error.
#[tokio::test(start_paused = true)]
async fn an_endless_body_ends_the_request() {
    let refusal = Answer::new(403, r#"{"kind":"Status","code":403"#).tail(Tail::Endless);
    let script =
        Script::new([pod().tail(Tail::Endless), refusal, busy().tail(Tail::Endless), pod()]);
    let client = script.client(&clock());
    let error = client.get_metadata(&PODS, "ns", "a").await.unwrap_err();
    assert!(matches!(error, ApiError::Transport { .. }), "{error:?}");
    assert!(crate::client::full_text(&error).ends_with("length limit exceeded"), "{error:?}");
    assert_eq!(client.get_metadata(&PODS, "ns", "a").await.unwrap_err().code(), 403);
    assert_eq!(client.get_metadata(&PODS, "ns", "a").await.unwrap().meta.version(), 7);
}

#[tokio::test(start_paused = true)]
async fn each_controller_has_its_own_rate_limit() {
    let script = Script::new(std::iter::repeat_with(pod).take(6));
    let client = Client::builder(script.kube(), clock()).qps(1.0).burst(1).build();
    let other = client.with_user_agent("other");
    let start = Clock::system().instant();
    for _ in 0..3 {
        client.get_metadata(&PODS, "ns", "a").await.unwrap();
        other.get_metadata(&PODS, "ns", "a").await.unwrap();
    }
    assert_eq!(start.elapsed().as_millis(), 2000);
}

#[tokio::test(start_paused = true)]
async fn writes_have_the_method_path_and_content_type_of_the_api() {
    let script = Script::new(std::iter::repeat_with(pod).take(4));
    let client = script.client(&clock());
    let body = || Bytes::from_static(b"{}");
    let _: Metadata =
        client.patch(&PODS, "ns", "a", "status", PatchType::Strategic, body()).await.unwrap();
    let _: Metadata = client.create_subresource(&PODS, "ns", "a", "binding", body()).await.unwrap();
    client
        .delete(&PODS, "ns", "a", &DeleteOptions { uid: "u".into(), ..Default::default() })
        .await
        .unwrap();
    let all = ListOptions { labels: "x=y".into(), ..ListOptions::default() };
    client.delete_collection(&PODS, "ns", &DeleteOptions::default(), &all).await.unwrap();
    assert_eq!(
        script.seen(),
        [
            "PATCH /api/v1/namespaces/ns/pods/a/status",
            "POST /api/v1/namespaces/ns/pods/a/binding",
            "DELETE /api/v1/namespaces/ns/pods/a",
            "DELETE /api/v1/namespaces/ns/pods?labelSelector=x%3Dy",
        ]
    );
    assert_eq!(script.headers(0)["content-type"], "application/strategic-merge-patch+json");
    assert!(!script.headers(3).contains_key("content-type"));
}

#[tokio::test(start_paused = true)]
async fn aggregated_discovery_reports_stale_groups() {
    let core = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{"version":"v1","freshness":"Current",
        "resources":[{"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced",
        "singularResource":"pod","verbs":["list","watch"],"shortNames":["po"],
        "subresources":[{"subresource":"status","verbs":["get"]}]}]}]}]}"#;
    let groups = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"metrics.k8s.io"},
        "versions":[{"version":"v1beta1","freshness":"Stale","resources":[]}]}]}"#;
    let script = Script::new([Answer::new(200, core), Answer::new(200, groups)]);
    let found = script.client(&clock()).api_resources().await.unwrap();
    let [pods] = &found.resources[..] else { panic!("{found:?}") };
    assert_eq!(pods.kind, PODS);
    assert!(pods.supports_verb("watch") && !pods.supports_verb("delete") && pods.preferred);
    assert_eq!(&*pods.subresources[0], "status");
    assert_eq!(&*found.failed[0].group, "metrics.k8s.io");
}

#[tokio::test(start_paused = true)]
async fn discovery_reuses_the_result_while_the_etags_match() {
    let list = r#"{"kind":"APIGroupDiscoveryList","items":[]}"#;
    let tagged = |tag| Answer::new(200, list).header("etag", tag);
    let same = || Answer::new(304, "");
    let script = Script::new([
        tagged("\"a\""),
        tagged("\"b\""), // The first discovery reads both lists.
        same(),
        same(),
        same(),
        tagged("\"c\""),
        tagged("\"a\""),
        tagged("\"c\""), // The second list has changed, so both are read again.
        same(),
        same(),
    ]);
    let client = script.client(&clock());
    let first = client.api_resources().await.unwrap();
    assert!(Arc::ptr_eq(&first, &client.with_user_agent("other").api_resources().await.unwrap()));
    let second = client.api_resources().await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&second, &client.api_resources().await.unwrap()));
    assert_eq!(script.headers(3)["if-none-match"], "\"b\"");
    assert!(!script.headers(6).contains_key("if-none-match"));
    assert_eq!(script.headers(9)["if-none-match"], "\"c\"");
}

#[tokio::test(start_paused = true)]
async fn a_recent_discovery_is_not_repeated() {
    let list = r#"{"kind":"APIGroupDiscoveryList","items":[]}"#;
    let script = Script::new(std::iter::repeat_with(|| Answer::new(200, list)).take(4));
    let client = script.client(&clock());
    let recent = || client.recent_api_resources(Duration::from_secs(30));
    let first = recent().await.unwrap();
    tokio::time::advance(Duration::from_secs(29)).await;
    assert!(Arc::ptr_eq(&first, &recent().await.unwrap()));
    assert_eq!(script.seen().len(), 2);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!Arc::ptr_eq(&first, &recent().await.unwrap()));
    assert_eq!(script.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn legacy_discovery_reports_each_group_that_fails() {
    let script = Script::new([
        Answer::new(200, r#"{"kind":"APIVersions","versions":["v1"]}"#),
        Answer::new(
            200,
            r#"{"kind":"APIResourceList","resources":[
                {"name":"pods","kind":"Pod","namespaced":true,"verbs":["list"],"shortNames":["po"]},
                {"name":"pods/status","kind":"Pod","namespaced":true,"verbs":["get"]}]}"#,
        ),
        Answer::new(
            200,
            r#"{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"version":"v1beta1"},{"version":"v1"}],
                "preferredVersion":{"version":"v1"}},{"name":"broken.io","versions":[{"version":"v1"}]}]}"#,
        ),
        Answer::new(
            200,
            r#"{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}"#,
        ),
        Answer::new(
            200,
            r#"{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}"#,
        ),
        Answer::new(503, "no endpoints"),
    ]);
    let found = script.client(&clock()).api_resources().await.unwrap();
    assert_eq!(found.resources.len(), 3);
    assert_eq!(&*found.of_kind("v1", "Pod").unwrap().subresources[0], "status");
    let preferred: Vec<_> = found.preferred().map(|r| r.kind.api_version().into_owned()).collect();
    assert_eq!(preferred, ["v1", "apps/v1"]);
    assert_eq!(
        found.failed,
        [FailedGroup {
            group: "broken.io".into(),
            version: "v1".into(),
            reason: "no endpoints".into()
        }]
    );
}
