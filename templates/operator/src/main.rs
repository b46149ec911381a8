//! Runs the operator in the cluster of the kubeconfig or of its pod. With the argument `crd`, prints its definition,
//! with `rbac` the permissions that it declares.

use evenkeel_runtime::{prelude::*, permissions};
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
            let permissions = permissions::of(operator)?.in_namespace("{{project-name}}");
            print!("{}", permissions.manifest("{{project-name}}"));
            return Ok(());
        }
        _ => {}
    }
    tracing_subscriber::fmt().init();
    let kube = Transport::try_default().await?;
    Ok(operator(kube, Setup::of_process()?)?.run(shutdown_signal()).await?)
}
