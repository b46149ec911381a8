//! Node ports of Services over the wire.

use serde_json::{Value, json};

use crate::Client;

#[tokio::test]
async fn updates_keep_the_ports_that_they_do_not_name() {
    let client = Client::start().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, spec: &Value| json!({"metadata": {"name": name}, "spec": spec});
    let update = async |name: &str, spec: Value| {
        let path = format!("{services}/{name}");
        client.ask("PUT", &path, service(name, &spec)).await
    };
    let local = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "externalTrafficPolicy": "Local",
        "ports": [{"port": 80}]});
    let made = client.make(services, service("local", &local)).await;
    let port = made["spec"]["healthCheckNodePort"].as_i64().expect("a port");
    for _ in 0..2 {
        let (code, updated) = update("local", local.clone()).await;
        assert_eq!(
            (code.as_u16(), updated["spec"]["healthCheckNodePort"].as_i64()),
            (200, Some(port))
        );
    }

    let ports = json!([{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81, "nodePort": 30081}]);
    client.make(services, service("lb", &json!({"type": "LoadBalancer", "ports": ports}))).await;
    let ports = json!([{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81}]);
    let spec =
        json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports});
    let (_, updated) = update("lb", spec).await;
    let node_ports =
        |service: &Value| [0, 1].map(|at| service["spec"]["ports"][at]["nodePort"].as_i64());
    assert_eq!(node_ports(&updated), [Some(30080), None]);

    let taken = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    let (code, status) = client.ask("POST", services, service("other", &taken)).await;
    assert_eq!(
        (code.as_u16(), &status["message"]),
        (
            422,
            &json!(
                "Service \"other\" is invalid: \
        spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
            )
        )
    );
    let freed = json!({"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30081}, {"name": "b", "port": 81}]});
    let made = client.make(services, service("np", &freed)).await;
    let [_, other] = node_ports(&made);
    let swapped = json!({"type": "NodePort", "ports": [{"name": "a", "port": 85}, {"name": "b", "port": 80, "nodePort": 30081}]});
    let (code, updated) = update("np", swapped).await;
    assert_eq!(code, 200, "{updated}");
    let [first, second] = node_ports(&updated);
    assert_eq!(second, Some(30081));
    assert!(first.is_some() && first != second && first != other, "{updated}");
    let duplicate = json!({"type": "NodePort", "ports": [{"name": "a", "port": 85, "nodePort": 30081}, {"name": "b", "port": 80, "nodePort": 30081}]});
    let (code, status) = update("np", duplicate).await;
    assert_eq!(
        (code.as_u16(), &status["message"]),
        (500, &json!("duplicate nodePort: {TCP 30081}"))
    );
    let no_ports = json!({"type": "ClusterIP", "ports": [{"name": "a", "port": 85, "nodePort": 30081}, {"name": "b", "port": 80}]});
    let (code, updated) = update("np", no_ports).await;
    assert_eq!((code.as_u16(), node_ports(&updated)), (200, [None, None]));
}
