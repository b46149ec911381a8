//! Logs of simulated containers: only the embedded server has kubelets that serve them.

use crate::cluster::{Cluster, Namespace};
use futures::AsyncReadExt as _;
use serde_json::{Value, json};

/// Creates a pod whose container runs a script.
async fn run(namespace: &Namespace<'_>, name: &str, restart: &str, script: &str) {
    let container = json!({"name": "c", "image": "busybox", "command": ["sh", "-c", script]});
    let pod = json!({"metadata": {"name": name}, "spec": {"restartPolicy": restart, "containers": [container]}});
    namespace.create("pods", pod).await;
}

fn request(namespace: &Namespace<'_>, pod: &str, query: &str) -> http::Request<Vec<u8>> {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/log?{query}", namespace.name);
    http::Request::get(path).body(Vec::new()).expect("a request")
}

/// Returns the log, or the error message if there is none.
async fn log(namespace: &Namespace<'_>, pod: &str, query: &str) -> String {
    let answer = namespace.cluster().kube().request_text(request(namespace, pod, query)).await;
    match answer {
        Ok(text) => text,
        Err(kube::Error::Api(status)) => status.message,
        Err(error) => panic!("{pod}?{query}: {error}"),
    }
}

/// Returns the log of a container, followed to its end.
async fn followed(namespace: &Namespace<'_>, pod: &str, query: &str) -> String {
    let request = request(namespace, pod, &format!("follow=true&{query}"));
    let stream = namespace.cluster().kube().request_stream(request).await.expect("a log");
    let (mut stream, mut text) = (std::pin::pin!(stream), String::new());
    stream.read_to_string(&mut text).await.expect("it ends");
    text
}

fn running(pod: &Value) -> bool {
    !pod["status"]["containerStatuses"][0]["state"]["running"].is_null()
}

async fn are_read_and_followed(cluster: &Cluster) {
    let namespace = cluster.namespace("logs").await;
    let namespace = &namespace;
    run(namespace, "count", "Never", "for i in 1 2 3; do echo $i; sleep 100; done; printf end")
        .await;
    run(namespace, "boom", "Always", "echo boom >&2; sleep 5; exit 1").await;
    run(namespace, "quiet", "Always", "sleep 1000000").await;
    namespace.until("pods/count", running).await;
    assert_eq!(log(namespace, "count", "").await, "1\n");
    // A followed log is equal to the log that is read at the end.
    assert_eq!(followed(namespace, "count", "").await, "1\n2\n3\nend");
    assert_eq!(followed(namespace, "count", "").await, "1\n2\n3\nend");
    assert_eq!(log(namespace, "count", "tailLines=2").await, "3\nend");
    assert_eq!(log(namespace, "quiet", "").await, "");

    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] != 0;
    let pod = namespace.until("pods/boom", restarted).await;
    assert!(pod["metadata"]["uid"].is_string());
    assert_eq!(log(namespace, "boom", "previous=true").await, "boom\n");
    let why = log(namespace, "quiet", "previous=true").await;
    assert_eq!(why, "previous terminated container \"c\" in pod \"quiet\" not found");
    let why = log(namespace, "quiet", "tailLines=-1").await;
    assert!(why.contains("tailLines: Invalid value: -1"), "{why}");

    // A followed log ends when the pod is deleted.
    let (text, ()) = futures::join!(followed(namespace, "quiet", ""), async {
        namespace.delete("pods/quiet", "Background").await;
    });
    assert_eq!(text, "");
}

#[tokio::test(start_paused = true)]
async fn logs_are_read_and_followed() {
    crate::embedded::run(|cluster| Box::pin(are_read_and_followed(cluster))).await;
}
