//! Runs the operator of external secrets in the cluster of the kubeconfig or of its pod. `sharded-operator crd` prints the
//! CustomResourceDefinition, `sharded-operator rbac` the permissions that the operator declares.

use evenkeel_runtime::{permissions, prelude::*};
use kube::CustomResourceExt as _;
use sharded_operator::{ExternalSecret, Folder, operator};
use std::io::Write as _;

/// Folder of the vault, as in `manifests/operator.yaml`.
const VAULT: &str = "/vault";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("crd") => {
            let definition = serde_json::to_string_pretty(&ExternalSecret::crd())?;
            writeln!(std::io::stdout(), "{definition}")?;
            return Ok(());
        }
        Some("rbac") => {
            let permissions =
                permissions::of(|kube, setup| operator(kube, setup, Folder::new(VAULT)))?;
            let manifest =
                permissions.in_namespace("external-secrets").manifest("external-secrets");
            write!(std::io::stdout(), "{manifest}")?;
            return Ok(());
        }
        _ => {}
    }
    tracing_subscriber::fmt().init();
    let kube = kube::Client::try_default().await?;
    let manager = operator(kube, Setup::of_process()?, Folder::new(VAULT))?;
    Ok(manager.run(shutdown_signal()).await?)
}
