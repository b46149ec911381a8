//! The example provider, with its controllers on the embedded API server in virtual time.

#![allow(clippy::unwrap_used, reason = "a test says by panicking what is wrong")]

#[path = "../../examples/files.rs"]
#[allow(unreachable_pub, reason = "an example is written as its users write it")]
mod files;

use bytes::Bytes;
use evenkeel_api::time::Timestamp;
use evenkeel_cloud::{CloudContext, Options};
use evenkeel_runtime::{
    cache::Caches, client::Client, clock::Clock, controller::Env, tasks::Tasks,
};
use evenkeel_test::TestServer;
use files::Files;
use prometheus::Registry;
use serde_json::{Value, json};
use std::{path::Path, sync::Arc, time::Duration};

const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media)
        .header("accept", "application/json")
        .body(body)
        .unwrap();
    serde_json::from_slice(client.raw(request).await.unwrap().body()).unwrap()
}

fn files_in(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn service_has_a_file_while_its_type_is_load_balancer() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::starting_at(Timestamp::constant(1_790_000_000, 0));
    let server = TestServer::builder().clock(clock.clone()).seed(7).start().await.unwrap();
    let client = Client::new(server.client(), clock.clone());
    let (registry, tasks) = (Registry::new(), Tasks::new());
    let caches = Caches::new(client.clone(), clock.clone(), &registry);
    let writer = client.clone();
    let context = CloudContext {
        env: Env::new(client.clone(), caches.clone(), clock.clone(), &registry),
        clients: Arc::new(move |_| writer.clone()),
        tasks: tasks.clone(),
        registry,
        provider: Arc::new(Files::new(folder.path(), "192.0.2.10")),
        options: Arc::new(Options::default()),
    };
    context.start_all().unwrap();
    caches.start(&tasks);

    send(&client, "POST", "/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
    let addresses = json!([{"type": "InternalIP", "address": "10.0.0.1"}]);
    let status = json!({"status": {"addresses": addresses}});
    send(&client, "PATCH", "/api/v1/nodes/n/status", &status).await;
    clock.sleep(Duration::from_secs(1)).await;

    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    let made = send(&client, "POST", SERVICES, &service).await;
    clock.sleep(Duration::from_secs(1)).await;
    let web = send(&client, "GET", &format!("{SERVICES}/web"), &Value::Null).await;
    let ingress = json!([{"ip": "192.0.2.10", "ipMode": "Proxy"}]);
    assert_eq!(web["status"]["loadBalancer"]["ingress"], ingress);

    let port = &made["spec"]["ports"][0]["nodePort"];
    let leads_to_node = || {
        let [file] = &files_in(folder.path())[..] else { panic!("one file") };
        file.contains(&format!("server n 10.0.0.1:{port} check"))
    };
    assert!(leads_to_node());
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    let excluded = json!({"metadata": {"labels": {label: "true"}}});
    send(&client, "PATCH", "/api/v1/nodes/n", &excluded).await;
    clock.sleep(Duration::from_secs(1)).await;
    assert!(!leads_to_node());

    let udp = json!({"spec": {"ports": [{"port": 53, "protocol": "UDP"}]}});
    send(&client, "PATCH", &format!("{SERVICES}/web"), &udp).await;
    clock.sleep(Duration::from_secs(1)).await;
    let events = send(&client, "GET", "/api/v1/namespaces/default/events", &Value::Null).await;
    let has_event = events["items"].as_array().unwrap().iter().any(|event| {
        let message = event["message"].as_str().unwrap_or_default();
        event["reason"] == "SyncLoadBalancerFailed" && message.ends_with("UDP is not balanced here")
    });
    assert!(has_event, "{events:#}");

    send(&client, "DELETE", &format!("{SERVICES}/web"), &Value::Null).await;
    clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(files_in(folder.path()), Vec::<String>::new());
    let left = send(&client, "GET", SERVICES, &Value::Null).await;
    let left = left["items"].as_array().unwrap();
    assert!(left.iter().all(|service| service["metadata"]["name"] != "web"), "{left:#?}");
    tasks.shut_down(Duration::from_secs(5)).await;
}
