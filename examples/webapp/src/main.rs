//! Runs the operator of web applications in the cluster of the kubeconfig or of its pod. `webapp-operator crd` prints the
//! CustomResourceDefinition.

use evenkeel_runtime::prelude::*;
use kube::CustomResourceExt as _;
use std::io::Write as _;
use webapp_operator::{Dns, WebApp, operator};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        let definition = serde_json::to_string_pretty(&WebApp::crd())?;
        writeln!(std::io::stdout(), "{definition}")?;
        return Ok(());
    }
    tracing_subscriber::fmt().init();
    let kube = kube::Client::try_default().await?;
    let manager = operator(kube, Setup::of_process()?, Dns::default())?;
    Ok(manager.run(shutdown_signal()).await?)
}
