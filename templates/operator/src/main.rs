//! Runs the operator in the cluster of the kubeconfig or of its pod. With the argument `crd`, prints its definition,
//! with `rbac` the rights that it declares.

use evenkeel_runtime::{prelude::*, rights};
use kube::CustomResourceExt as _;

use {{crate_name}}::{{kind}};
use {{crate_name}}::operator;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("crd") => {
            print!("{}", serde_saphyr::to_string(&{{kind}}::crd())?);
            return Ok(());
        }
        Some("rbac") => {
            let rights = rights::of(operator)?.in_namespace("{{project-name}}");
            print!("{}", rights.manifest("{{project-name}}"));
            return Ok(());
        }
        _ => {}
    }
    tracing_subscriber::fmt().init();
    let kube = Transport::try_default().await?;
    Ok(operator(kube, Setup::of_process()?)?.run(shutdown_signal()).await?)
}
