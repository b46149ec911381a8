//! The operator on kube-rs' runtime, which reads children from a store as the others do.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt as _,
        controller::{Action, Config, Controller},
        predicates,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use operator_bench::{CONCURRENCY, Gadget, GadgetStatus};
use serde_json::json;
use std::{sync::Arc, time::Duration};

struct Context {
    client: Client,
    children: Store<ConfigMap>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("the children are not watched any more")]
    Children(#[from] reflector::store::WriterDropped),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // With any value, what is stored has no `managedFields`. kube-rs stores them by default.
    let drops_managed_fields = std::env::var_os("DROP_MANAGED_FIELDS").is_some();
    let client = Client::try_default().await?;
    let (gadgets, gadget_writer) = reflector::store();
    let gadget_events = watcher(Api::<Gadget>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(move |gadget| {
            if drops_managed_fields {
                gadget.managed_fields_mut().clear();
            }
        })
        .reflect(gadget_writer)
        .applied_objects()
        .predicate_filter(predicates::generation, Default::default());
    let (children, child_writer) = reflector::store();
    let child_events = watcher(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(move |child| {
            if drops_managed_fields {
                child.managed_fields_mut().clear();
            }
        })
        .reflect(child_writer)
        .touched_objects();
    Controller::for_stream(gadget_events, gadgets)
        .owns_stream(child_events)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .shutdown_on_signal()
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(Context { client, children }),
        )
        .for_each(async |result| {
            if let Err(error) = result {
                eprintln!("{error}");
            }
        })
        .await;
    Ok(())
}

async fn reconcile(gadget: Arc<Gadget>, cx: Arc<Context>) -> Result<Action, Error> {
    cx.children.wait_until_ready().await?;
    let (name, namespace) = (gadget.name_any(), gadget.namespace().unwrap_or_default());
    let children = Api::<ConfigMap>::namespaced(cx.client.clone(), &namespace);
    let present = cx.children.get(&ObjectRef::new(&name).within(&namespace));
    let mut child = present.as_deref().cloned().unwrap_or_default();
    child.metadata.name = Some(name.clone());
    child.metadata.namespace = Some(namespace.clone());
    child.metadata.owner_references = Some(gadget.controller_owner_ref(&()).into_iter().collect());
    child.data = Some(gadget.data());
    match present {
        None => drop(children.create(&PostParams::default(), &child).await?),
        Some(present) if *present != child => {
            children.replace(&name, &PostParams::default(), &child).await?;
        }
        Some(_) => {}
    }
    let status = GadgetStatus {
        observed_generation: gadget.metadata.generation.unwrap_or_default(),
        child: name.clone(),
    };
    if gadget.status.as_ref() != Some(&status) {
        let gadgets = Api::<Gadget>::namespaced(cx.client.clone(), &namespace);
        let patch = Patch::Merge(json!({"status": status}));
        gadgets.patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(Action::await_change())
}
