//! Runs the operator of policies in the cluster of the kubeconfig or of its pod. `policy-operator crd` prints the
//! CustomResourceDefinition.

use evenkeel_runtime::prelude::*;
use kube::CustomResourceExt as _;
use policy_operator::{FieldPolicy, operator};
use std::io::Write as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        let definition = serde_json::to_string_pretty(&FieldPolicy::crd())?;
        writeln!(std::io::stdout(), "{definition}")?;
        return Ok(());
    }
    tracing_subscriber::fmt().init();
    let kube = kube::Client::try_default().await?;
    Ok(operator(kube, Setup::of_process()?)?.run(shutdown_signal()).await?)
}
