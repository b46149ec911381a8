//! Node ports and cluster IPs of Services over the wire.

use serde_json::{Value, json};

use crate::Client;
use crate::settings::admin;
use evenkeel_apiserver::Server;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn updates_keep_the_ports_that_they_do_not_name() {
    let client = Client::start().await;
    let update = async |name: &str, spec: Value| {
        let path = format!("{SERVICES}/{name}");
        client.ask("PUT", &path, service(name, &spec)).await
    };
    let local = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "externalTrafficPolicy": "Local",
        "ports": [{"port": 80}]});
    let made = client.make(SERVICES, service("local", &local)).await;
    let port = made["spec"]["healthCheckNodePort"].as_i64().expect("a port");
    for _ in 0..2 {
        let (code, updated) = update("local", local.clone()).await;
        assert_eq!(
            (code.as_u16(), updated["spec"]["healthCheckNodePort"].as_i64()),
            (200, Some(port))
        );
    }

    let ports = json!([{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81, "nodePort": 30081}]);
    client.make(SERVICES, service("lb", &json!({"type": "LoadBalancer", "ports": ports}))).await;
    let ports = json!([{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81}]);
    let spec =
        json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports});
    let (_, updated) = update("lb", spec).await;
    let node_ports =
        |service: &Value| [0, 1].map(|at| service["spec"]["ports"][at]["nodePort"].as_i64());
    assert_eq!(node_ports(&updated), [Some(30080), None]);

    let taken = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    let (code, status) = client.ask("POST", SERVICES, service("other", &taken)).await;
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
    let made = client.make(SERVICES, service("np", &freed)).await;
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

/// Returns the cluster IPs of a Service, and how many IPAddresses belong to the Service.
async fn addresses(client: &Client, service: &Value) -> (Vec<String>, usize) {
    let ips = service["spec"]["clusterIPs"].as_array().into_iter().flatten();
    let ips = ips.filter_map(Value::as_str).map(str::to_owned).collect();
    let all = client.get("/apis/networking.k8s.io/v1/ipaddresses").await;
    let items = all["items"].as_array().into_iter().flatten();
    let name = &service["metadata"]["name"];
    (ips, items.filter(|item| &item["spec"]["parentRef"]["name"] == name).count())
}

#[tokio::test]
async fn a_service_gains_and_releases_the_second_address_of_a_dual_stack_cluster() {
    let server = Server::builder().service_cluster_ip_range("10.0.0.0/24,fd00:10::/112");
    let client = admin(server).await;
    let spec = |mut spec: Value| {
        spec["ports"] = json!([{"port": 80}]);
        spec
    };
    let one = client.make(SERVICES, service("one", &spec(json!({})))).await;
    let (ips, count) = addresses(&client, &one).await;
    assert!(ips.len() == 1 && ips[0].starts_with("10.0.0.") && count == 1, "{one}");

    let both = spec(json!({"ipFamilyPolicy": "RequireDualStack"}));
    let path = format!("{SERVICES}/one");
    let (code, upgraded) = client.ask("PUT", &path, service("one", &both)).await;
    let (upgraded_ips, count) = addresses(&client, &upgraded).await;
    assert_eq!((code.as_u16(), count), (200, 2), "{upgraded}");
    assert_eq!(upgraded_ips[0], ips[0]);
    assert!(upgraded_ips[1].starts_with("fd00:10::"), "{upgraded}");
    assert_eq!(upgraded["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));

    let taken = spec(json!({"ipFamilies": ["IPv6"], "clusterIP": upgraded_ips[1]}));
    let (code, status) = client.ask("POST", SERVICES, service("other", &taken)).await;
    let why = format!(
        "Service \"other\" is invalid: spec.clusterIPs: Invalid value: [\"{0}\"]: failed to allocate IP {0}: provided \
         IP is already allocated",
        upgraded_ips[1]
    );
    assert_eq!((code.as_u16(), &status["message"]), (422, &json!(why)));
    let half = spec(json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": ips[0]}));
    let (code, status) = client.ask("POST", SERVICES, service("other", &half)).await;
    let why = format!(
        "Service \"other\" is invalid: spec.clusterIPs: Invalid value: [\"{0}\",\"\"]: failed to allocate IP {0}: \
         provided IP is already allocated",
        ips[0]
    );
    assert_eq!((code.as_u16(), &status["message"]), (422, &json!(why)));

    let mut object = upgraded.clone();
    object["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    let (code, released) = client.ask("PUT", &path, object).await;
    assert_eq!((code.as_u16(), addresses(&client, &released).await), (200, (ips, 1)), "{released}");
    let made = client.make(SERVICES, service("other", &taken)).await;
    assert_eq!(made["spec"]["clusterIPs"], json!([upgraded_ips[1]]));

    let reversed = spec(json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6"]}));
    let made = client.make(SERVICES, service("reversed", &reversed)).await;
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    assert_eq!(made["spec"]["clusterIP"], made["spec"]["clusterIPs"][0]);
    let (code, _) = client.ask("DELETE", &format!("{SERVICES}/reversed"), Value::Null).await;
    assert_eq!((code.as_u16(), addresses(&client, &made).await.1), (200, 0));
}

#[tokio::test]
async fn a_full_range_is_an_internal_error() {
    let client = admin(Server::builder().service_cluster_ip_range("10.0.0.0/29")).await;
    let spec = json!({"ports": [{"port": 80}]});
    for name in ["a", "b", "c", "d", "e"] {
        client.make(SERVICES, service(name, &spec)).await;
    }
    let (code, status) = client.ask("POST", SERVICES, service("f", &spec)).await;
    let why =
        "Internal error occurred: failed to allocate a serviceIP for Service \"f\": range is full";
    assert_eq!((code.as_u16(), &status["message"]), (500, &json!(why)));
}
