//! Runs the operator of databases in the cluster of the kubeconfig or of its pod. `database-operator manifests` prints the
//! CustomResourceDefinition and the webhook configurations.

use database_operator::{configurations, definition, operator, webhooks};
use evenkeel_runtime::prelude::*;
use serde_json::json;
use std::io::Write as _;

/// Namespace of the operator, as in `manifests/operator.yaml`.
const NAMESPACE: &str = "database-operator";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("manifests") {
        let mut items = vec![definition(NAMESPACE, 443)?];
        items.extend(configurations(NAMESPACE, 443));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&list)?)?;
        return Ok(());
    }
    tracing_subscriber::fmt().init();
    let kube = kube::Client::try_default().await?;
    let manager = operator(kube, Setup::of_process()?, webhooks(9443, NAMESPACE))?;
    Ok(manager.run(shutdown_signal()).await?)
}
