//! Runs the operator. With the argument `crd`, prints the definition of its kind.

use evenkeel_runtime::prelude::*;
use kube::CustomResourceExt as _;
use site_operator::{Dns, Site, operator};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        return Ok(serde_json::to_writer(std::io::stdout(), &Site::crd())?);
    }
    tracing_subscriber::fmt().init();
    let kube = Transport::try_default().await?;
    Ok(operator(kube, Setup::of_process()?, Dns::default())?.run(shutdown_signal()).await?)
}
