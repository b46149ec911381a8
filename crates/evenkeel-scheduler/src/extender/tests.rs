//! What extenders are sent, and what is made of their answers.

use super::{Extender, ExtenderError, FilteredNodes, set_up, wire};
use crate::{
    fixtures,
    program::config::{ExtenderConfig, ManagedResource, Span},
};
use evenkeel_runtime::{cache::Caches, client::Client, clock::Clock};
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// What an extender was sent, and where.
type Seen = Arc<Mutex<Vec<(String, Value)>>>;

/// An extender that answers each request with the next of these, status and body.
async fn listening(answers: Vec<(u16, Value)>) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base/", listener.local_addr().unwrap());
    let (seen, seen_there) = (Seen::default(), Seen::default());
    let told = Arc::clone(&seen);
    drop(seen_there);
    #[expect(clippy::disallowed_methods, reason = "the other side of a test")]
    tokio::spawn(async move {
        for (status, answer) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = Vec::new();
            let (head, length) = loop {
                let mut buffer = [0; 4096];
                let n = stream.read(&mut buffer).await.unwrap();
                read.extend_from_slice(&buffer[..n]);
                let text = String::from_utf8_lossy(&read).into_owned();
                if let Some((head, _)) = text.split_once("\r\n\r\n") {
                    let length = head
                        .lines()
                        .find_map(|line| {
                            line.to_ascii_lowercase()
                                .strip_prefix("content-length: ")
                                .map(str::to_owned)
                        })
                        .map_or(0, |length| length.parse::<usize>().unwrap());
                    if read.len() >= head.len() + 4 + length {
                        break (head.to_owned(), length);
                    }
                }
            };
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let body = serde_json::from_slice(&read[read.len() - length..]).unwrap();
            told.lock().unwrap().push((path, body));
            let body = answer.to_string();
            let text = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    (url, seen)
}

/// An API server that has one pod.
fn api() -> (Client, Caches) {
    let service = tower::service_fn(|request: Request<Body>| async move {
        assert_eq!(request.uri().path(), "/api/v1/namespaces/shop/pods/p");
        let pod = json!({"metadata": {"name": "p"}, "spec": {"dnsPolicy": "Default"}});
        Ok::<_, std::convert::Infallible>(Response::new(Body::from(pod.to_string().into_bytes())))
    });
    let clock = Clock::system();
    let client = Client::new(kube::Client::new(service, "default"), clock.clone());
    let caches = Caches::new(client.clone(), clock, &prometheus::Registry::new());
    (client, caches)
}

async fn extender(
    change: impl FnOnce(&mut ExtenderConfig),
    answers: Vec<(u16, Value)>,
) -> (Arc<Extender>, Seen) {
    let (url, seen) = listening(answers).await;
    let mut config = ExtenderConfig {
        url_prefix: url,
        filter_verb: "filter".to_owned(),
        prioritize_verb: "prioritize".to_owned(),
        bind_verb: "bind".to_owned(),
        weight: 3,
        node_cache_capable: true,
        ..ExtenderConfig::default()
    };
    change(&mut config);
    let (client, caches) = api();
    let mut extenders = set_up(&[config], &client, &caches).unwrap();
    (extenders.remove(0), seen)
}

fn names(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

#[tokio::test]
async fn an_extender_filters_scores_and_binds() {
    let filtered = json!({"nodenames": ["b"], "FailedNodes": {"a": "no"}, "failedAndUnresolvableNodes": {"c": "never"}, "Error": null});
    let scored = json!([{"Host": "b", "Score": 7}]);
    let answers = vec![(200, filtered), (200, scored), (200, json!({"Error": "taken"}))];
    let (extender, seen) = extender(|_| {}, answers).await;
    let pod = fixtures::pod("p", &json!({}));
    let all = names(&["a", "b", "c"]);
    let left = extender.filter(&pod, &all).await.unwrap();
    let map = |key: &str, why: &str| [(key.to_owned(), why.to_owned())].into();
    let wanted = FilteredNodes {
        left: names(&["b"]),
        failed: map("a", "no"),
        unresolvable: map("c", "never"),
    };
    assert_eq!(left, wanted);
    assert_eq!(extender.score(&pod, &left.left).await.unwrap(), [("b".to_owned(), 210)]);
    let refused = extender.bind(&pod, "b").await.unwrap_err();
    assert_eq!(refused.to_string(), "taken");
    let seen = seen.lock().unwrap();
    let paths: Vec<&str> = seen.iter().map(|(path, _)| &**path).collect();
    assert_eq!(paths, ["/base/filter", "/base/prioritize", "/base/bind"]);
    let whole = json!({"metadata": {"name": "p"}, "spec": {"dnsPolicy": "Default"}});
    assert_eq!(seen[0].1, json!({"Pod": whole, "Nodes": null, "NodeNames": ["a", "b", "c"]}));
    let binding = json!({"PodName": "p", "PodNamespace": "shop", "PodUID": "p", "Node": "b"});
    assert_eq!(seen[2].1, binding);
}

#[tokio::test]
async fn what_goes_wrong_is_told() {
    let unknown = json!({"NodeNames": ["elsewhere"]});
    let answers = vec![(500, json!({})), (200, unknown), (200, json!("what"))];
    let (extender, _) = extender(|config| config.http_timeout = Span(2_000_000_000), answers).await;
    let (pod, all) = (fixtures::pod("p", &json!({})), names(&["a"]));
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(extender.filter(&pod, &all).await.unwrap_err());
    }
    assert!(matches!(told[0], ExtenderError::Status { code: 500, .. }), "{told:?}");
    assert!(matches!(told[1], ExtenderError::UnknownNode(..)), "{told:?}");
    assert!(matches!(told[2], ExtenderError::Answer(..)), "{told:?}");
    assert!(matches!(told[3], ExtenderError::Unreachable(..)), "it listens no more: {told:?}");
}

#[tokio::test]
async fn pods_are_its_business_by_their_resources() {
    let managed = ManagedResource { name: "a.b/c".to_owned(), ignored_by_scheduler: false };
    let (extender, _) =
        extender(|config| config.managed_resources = vec![managed], Vec::new()).await;
    let with = |field: &str, resources: Value| {
        let container = json!({"name": "c", "resources": {"limits": resources}});
        fixtures::pod("p", &json!({"spec": {field: [container]}}))
    };
    assert!(extender.is_interested(&with("initContainers", json!({"a.b/c": 1}))));
    assert!(extender.is_interested(&with("containers", json!({"a.b/c": 1}))));
    assert!(!extender.is_interested(&with("containers", json!({"cpu": 1}))));
}

#[test]
fn nodes_are_read_where_they_are_whole() {
    let body = br#"{"Nodes":{"items":[{"metadata":{"name":"x"}}]},"NodeNames":null}"#;
    let mut read: wire::FilterResult = wire::read(body).unwrap();
    assert_eq!(read.left(false), ["x"]);
}
