//! Reads of caches that have not synced: caches of late watches, and of kinds that are not served.

use crate::{
    Fixture, Lines, create,
    dynamic::{gadget, gadgets, install_gadgets},
    fixture, map, merge, start,
};
use evenkeel_runtime::{operator::NotSynced, prelude::*};
use futures::channel::mpsc;
use http::{Method, Request as HttpRequest};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    api::{Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};

/// Delay of lists of Secrets.
const DELAY: Duration = Duration::from_secs(3);

/// Returns a client that is slow to list Secrets.
fn slow_to_list_secrets(inner: kube::Client) -> kube::Client {
    let service = tower::service_fn(move |request: HttpRequest<Body>| {
        let is_slow = request.method() == Method::GET && request.uri().path().ends_with("/secrets");
        let inner = inner.clone();
        async move {
            if is_slow {
                tokio::time::sleep(DELAY).await;
            }
            inner.send(request).await
        }
    });
    kube::Client::new(service, "default")
}

fn errors(registry: &evenkeel_runtime::prometheus::Registry) -> f64 {
    let families = registry.gather();
    let family =
        families.iter().find(|family| family.name() == "controller_runtime_reconcile_errors_total");
    let metrics = family.into_iter().flat_map(|family| family.get_metric().to_vec());
    metrics.map(|metric| metric.get_counter().get_value()).sum()
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_reads_a_late_cache_waits_for_it() {
    let fixture = fixture().await;
    let secret = json!({"metadata": {"name": "web", "namespace": "default"}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    fixture.secrets().create(&PostParams::default(), &secret).await.unwrap();
    let setup = Setup::simulated(fixture.server.clock().clone(), "me");
    let kube = slow_to_list_secrets(fixture.server.client());
    let manager = Manager::builder(kube).setup(setup).build().unwrap();
    let (elected, registry) = (manager.elected(), manager.registry().clone());
    let log = Lines::default();
    let controller = manager
        .controller_of_requests("late")
        .state(Arc::clone(&log))
        .reconcile_requests(async |_, cx: Context<Lines>| {
            let found = cx.get::<Secret>("default", "web");
            let text = match &found {
                Ok(found) => format!("{}", found.is_some()),
                Err(error) => error.to_string(),
            };
            cx.state().lock().unwrap().push(text);
            found.map(|_| Outcome::Settled)
        });
    start(manager);
    elected.await;
    let watch = controller.watches(|_: &Secret| Vec::new());
    assert!(!watch.has_synced());
    controller.enqueue(Key::new("", "a"));
    tokio::time::sleep(DELAY / 2).await;
    assert_eq!(*log.lock().unwrap(), ["the cache of Secret has not synced yet"], "no busy loop");
    watch.synced().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        log.lock().unwrap()[1..],
        ["true"],
        "it comes again as soon as the cache has synced"
    );
    assert_eq!(errors(&registry), 0.0, "to wait is no failure");

    watch.stop();
    log.lock().unwrap().clear();
    controller.enqueue(Key::new("", "a"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(log.lock().unwrap()[0].contains("does not declare it"), "the watch has ended");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_not_empty() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (sender, mut reads) = mpsc::unbounded::<(bool, Result<bool, String>)>();
    manager.controller::<ConfigMap>().reads_dynamic(gadgets()).optional().state(sender).reconcile(
        async |_, cx: Context<mpsc::UnboundedSender<(bool, Result<bool, String>)>>| {
            let synced = cx.has_synced_dynamic(&gadgets())?;
            let found = cx.get_dynamic(&gadgets(), "default", "web");
            let read = found.as_ref().map(Option::is_some);
            let read = read.map_err(|error| error.downcast_ref::<NotSynced>().unwrap().to_string());
            cx.state().unbounded_send((synced, read))?;
            found.map(|_| Outcome::Settled)
        },
    );
    start(manager);
    tokio::time::sleep(Duration::from_secs(10)).await;
    create(&fixture.maps(), map("web")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut all = || std::iter::from_fn(|| reads.try_recv().ok()).collect::<Vec<_>>();
    let before = all();
    let (synced, error) = &before[0];
    let error = error.clone().unwrap_err();
    assert!(
        !synced && error.starts_with("the cache of Gadget has not synced yet: the server does"),
        "{error}"
    );
    // A failed reconcile is retried with backoff, by now after several minutes.
    tokio::time::sleep(Duration::from_secs(330)).await;
    let _ = all();
    let api = install_gadgets(&fixture).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(all(), [(true, Ok(false))], "the pass comes when the cache has synced");
    api.create(&PostParams::default(), &gadget("web", 1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    merge(&fixture.maps(), "web", &json!({"data": {"k": "v"}})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(all().last(), Some(&(true, Ok(true))));
}

async fn patch_secret(fixture: &Fixture, patch: Value) {
    let patch = Patch::Merge(patch);
    fixture.secrets().patch("child", &PatchParams::default(), &patch).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn late_watches_have_predicates_owners_and_may_be_optional() {
    let fixture = fixture().await;
    let owner = create(&fixture.maps(), map("owner")).await;
    let manager = fixture.manager().build().unwrap();
    let (elected, observer, log) = (manager.elected(), manager.clone(), Lines::default());
    let controller = manager
        .controller::<ConfigMap>()
        .state(Arc::clone(&log))
        .reconcile_requests(crate::log_key);
    start(manager);
    elected.await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let take = || std::mem::take(&mut *log.lock().unwrap());
    take();
    let watch = controller.new_watch().when(labels_changed()).owns::<Secret>();
    controller.new_watch().optional().owns_dynamic(gadgets());
    watch.synced().await;
    assert!(observer.env().caches.has_synced(), "an optional kind is not waited for");
    let mut secret = Secret::default();
    secret.metadata.name = Some("child".to_owned());
    secret.controlled_by(&owner).unwrap();
    let secrets = fixture.secrets();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(take(), ["default/owner"]);
    patch_secret(&fixture, json!({"stringData": {"k": "v"}})).await;
    assert!(take().is_empty(), "the predicate rejects it");
    patch_secret(&fixture, json!({"metadata": {"labels": {"l": "1"}}})).await;
    assert_eq!(take(), ["default/owner"]);

    let gadgets = install_gadgets(&fixture).await;
    let mut child = gadget("child", 1);
    child.controlled_by(&owner).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    take();
    gadgets.create(&PostParams::default(), &child).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(take(), ["default/owner"]);
}
