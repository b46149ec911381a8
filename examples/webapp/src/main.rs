//! Runs the operator of web applications in the cluster of the kubeconfig or of its pod.

use evenkeel_runtime::prelude::*;
use webapp_operator::{Dns, operator};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let kube = kube::Client::try_default().await?;
    let manager = operator(kube, Setup::of_process()?, Dns::default())?;
    Ok(manager.run(shutdown_signal()).await?)
}
