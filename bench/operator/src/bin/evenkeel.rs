//! The operator on Evenkeel's runtime.

use evenkeel_runtime::prelude::*;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use operator_bench::{CONCURRENCY, Gadget};

fn main() -> anyhow::Result<()> {
    Worker::Frugal.runtime()?.block_on(operate())
}

async fn operate() -> anyhow::Result<()> {
    let manager = Manager::builder(Transport::try_default().await?).component("gadgets").build()?;
    manager
        .controller::<Gadget>()
        .when(generation_changed())
        .owns::<ConfigMap>()
        .max_concurrent(CONCURRENCY.into())
        .reconcile(reconcile);
    Ok(manager.run(shutdown_signal()).await?)
}

async fn reconcile(gadget: Arc<Gadget>, cx: Context) -> Result<Outcome> {
    let mut child = ConfigMap::default();
    child.metadata.namespace = gadget.namespace();
    child.metadata.name = Some(gadget.name_any());
    let change = |child: &mut ConfigMap| {
        child.data = Some(gadget.data());
        Ok(child.controlled_by(&*gadget)?)
    };
    cx.create_or_update(child, change).await?;
    let status = cx.status(&*gadget).set(|status| {
        status.observed_generation = gadget.metadata.generation.unwrap_or_default();
        status.child = gadget.name_any();
    });
    status.patch_if_changed().await?;
    Ok(Outcome::Settled)
}
