//! Information of an API server about itself.

use crate::cluster::{Cluster, items};
use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};

pub(crate) async fn tells_how_its_store_is(cluster: &Cluster) {
    let store = cluster.get("componentstatuses/etcd-0").await;
    let condition = &store["conditions"][0];
    let values = [&condition["type"], &condition["status"], &condition["message"]];
    assert_eq!(values, [&json!("Healthy"), &json!("True"), &json!("ok")]);
}

pub(crate) async fn says_what_flow_a_request_belongs_to(cluster: &Cluster) {
    let request = Request::get("/api/v1/namespaces/default").body(Bytes::new());
    let request = request.expect("a request");
    let answer = cluster
        .kube()
        .clone()
        .send(request.map(kube::client::Body::from))
        .await
        .expect("an answer");
    let header = |name: &str| Value::from(answer.headers()[name].to_str().expect("text"));
    let flows = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let schemas = cluster.get(&format!("{flows}/flowschemas")).await;
    let schema = items(&schemas)
        .iter()
        .find(|schema| schema["metadata"]["uid"] == header("x-kubernetes-pf-flowschema-uid"))
        .expect("the schema is there");
    let level = &schema["spec"]["priorityLevelConfiguration"]["name"];
    let level = level.as_str().expect("its level");
    let level = cluster.get(&format!("{flows}/prioritylevelconfigurations/{level}")).await;
    assert_eq!(level["metadata"]["uid"], header("x-kubernetes-pf-prioritylevel-uid"));
}

pub(crate) async fn notes_since_when_tokens_are_tracked(cluster: &Cluster) {
    let path = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let is_day = |map: &Value| {
        let since = map["data"]["since"].as_str().unwrap_or_default();
        since.split('-').map(str::len).eq([4, 2, 2])
    };
    cluster.until(path, is_day).await;
    cluster.patch(path, json!({"data": {"since": "yesterday"}})).await;
    cluster.until(path, is_day).await;
}
