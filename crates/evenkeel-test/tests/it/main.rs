//! The public API of the crate.

mod cluster;
mod page;
mod server;
mod wait;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Folder with the definition of widgets.
const CRDS: &str = "../../tests/clients/crds";

/// Converts JSON to an object.
fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn pod(name: &str) -> Pod {
    object(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }))
}

fn deployment(name: &str, replicas: i32) -> Deployment {
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "a", "image": "a"}]},
            },
        },
    }))
}

fn ready_replicas(deployment: &Deployment) -> i32 {
    deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0)
}

/// Returns the status code of a refused request; 0 without a response.
fn code<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> u16 {
    match answer.expect_err("refused") {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}
