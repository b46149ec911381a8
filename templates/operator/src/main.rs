//! Runs the operator in the cluster of the kubeconfig or of its pod. With the argument `crd`, prints its definition.

use evenkeel_runtime::prelude::*;
use kube::CustomResourceExt as _;

use {{crate_name}}::{{kind}};
use {{crate_name}}::operator;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        print!("{}", serde_saphyr::to_string(&{{kind}}::crd())?);
        return Ok(());
    }
    tracing_subscriber::fmt().init();
    let kube = Transport::try_default().await?;
    Ok(operator(kube, Setup::of_process()?)?.run(shutdown_signal()).await?)
}
