//! Operators on the embedded API server, in virtual time.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod clusters;
mod deletions;
mod dynamic;
mod late;
mod options;
mod permissions;
mod ports;
mod removal;
mod running;
mod sharded_watch;
mod shards;
mod tables;
mod telemetry;
mod writes;

use dynamic::{gadget, gadgets, install_gadgets};
use evenkeel_runtime::{
    client::{Client, LeaderFence},
    controller,
    manager::ManagerBuilder,
    operator::{ControllerBuilder, Requests},
    prelude::*,
};
use evenkeel_test::{Clock, TestServer, eventually, eventually_gone};
use futures::channel::mpsc;
use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};

type Lines = Arc<Mutex<Vec<String>>>;

/// A server, and a client that records its writes, and the paths of its reads.
struct Fixture {
    server: TestServer,
    kube: kube::Client,
    writes: Lines,
    reads: Lines,
}

async fn fixture() -> Fixture {
    let server = TestServer::start().await.unwrap();
    let (inner, writes, reads) = (server.client(), Lines::default(), Lines::default());
    let (log, read_log) = (Arc::clone(&writes), Arc::clone(&reads));
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_event = request.uri().path().contains("/events");
        if request.method() != Method::GET && !is_event {
            log.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        }
        if request.method() == Method::GET {
            read_log.lock().unwrap().push(request.uri().path().to_owned());
        }
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    let kube = kube::Client::new(service, "default");
    Fixture { server, kube, writes, reads }
}

impl Fixture {
    fn manager(&self) -> ManagerBuilder {
        let setup = Setup::simulated(self.server.clock().clone(), "me");
        let maps = CacheOptions::<ConfigMap>::in_namespace("default");
        Manager::builder(self.kube.clone()).component("test").setup(setup).cache(maps)
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.server.client())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::default_namespaced(self.server.client())
    }

    /// Returns all events of the core group.
    async fn events(&self) -> Vec<Event> {
        let events: Api<Event> = Api::default_namespaced(self.server.client());
        events.list(&Default::default()).await.unwrap().items
    }

    fn written(&self) -> Vec<String> {
        std::mem::take(&mut self.writes.lock().unwrap())
    }
}

#[expect(clippy::disallowed_methods, reason = "the test's end aborts the manager")]
fn start(manager: Manager) {
    tokio::spawn(manager.run(std::future::pending()));
}

/// Returns the context of a controller that reads objects of a kind. See [`context`].
#[expect(clippy::redundant_closure_for_method_calls, reason = "a path has one lifetime only")]
async fn reading<K: ApiObject>(manager: Manager) -> Context {
    context(manager, |builder| builder.reads::<K>()).await
}

/// Runs a manager with a controller `test`, and returns the context of one of its reconciles.
async fn context(
    manager: Manager,
    declare: impl for<'m> FnOnce(ControllerBuilder<'m, Requests>) -> ControllerBuilder<'m, Requests>,
) -> Context {
    let (sender, mut contexts) = mpsc::unbounded();
    let controller = declare(manager.controller_of_requests("test")).reconcile_requests(
        move |_, cx: Context| {
            let _ = sender.unbounded_send(cx);
            async { Ok(Outcome::Settled) }
        },
    );
    start(manager);
    controller.enqueue(Key::new("", "key"));
    futures::StreamExt::next(&mut contexts).await.unwrap()
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}})).unwrap()
}

async fn create(maps: &Api<ConfigMap>, map: ConfigMap) -> ConfigMap {
    maps.create(&PostParams::default(), &map).await.unwrap()
}

async fn merge(maps: &Api<ConfigMap>, name: &str, patch: &Value) -> ConfigMap {
    maps.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

/// Copies a ConfigMap's data into a Secret of the same name.
async fn copy(map: Arc<ConfigMap>, cx: Context) -> Result<Outcome> {
    let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
    secret.metadata.name = map.metadata.name.clone();
    secret.controlled_by(&*map)?;
    cx.apply(&secret).await?;
    let entries = map.data.iter().flatten().count();
    cx.event(&*map, format!("Copied{entries}"), "copied");
    Ok(Outcome::Settled)
}

#[tokio::test(start_paused = true)]
async fn an_intent_is_applied_once_until_somebody_changes_the_object() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    manager.controller::<ConfigMap>().owns::<Secret>().reconcile(copy);
    start(manager);
    let (maps, secrets) = (fixture.maps(), fixture.secrets());
    create(&maps, map("web")).await;
    eventually(&secrets, "web", |_| true).await.unwrap();
    merge(&maps, "web", &json!({"metadata": {"labels": {"l": "1"}}})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let patch = "PATCH /api/v1/namespaces/default/secrets/web";
    assert_eq!(fixture.written(), [patch], "the label changes no intent");

    merge(&maps, "web", &json!({"data": {"k": "v"}})).await;
    eventually(&secrets, "web", |secret| secret.data.is_some()).await.unwrap();
    secrets.delete("web", &DeleteParams::default()).await.unwrap();
    eventually(&secrets, "web", |secret| secret.data.is_some()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.written(), [patch, patch], "a change, and the Secret that was deleted");
    let events = fixture.events().await;
    let reasons: Vec<_> = events.into_iter().filter_map(|event| event.reason).collect();
    assert_eq!(reasons, ["Copied0", "Copied1"], "a reason may be computed");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_comes_first_and_leaves_after_its_cleanup() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (seen, cleanups) = (Lines::default(), Arc::new(AtomicU32::new(0)));
    let (log, count) = (Arc::clone(&seen), Arc::clone(&cleanups));
    manager
        .controller::<ConfigMap>()
        .state(log)
        .finalizer("example.com/outside", move |_, _: Context<Lines>| {
            let failures = count.fetch_add(1, Ordering::SeqCst);
            async move { if failures < 2 { Err(Error::message("not reachable")) } else { Ok(()) } }
        })
        .reconcile(async |map: Arc<ConfigMap>, cx: Context<Lines>| {
            cx.state().lock().unwrap().push(map.finalizers().join(","));
            Ok(Outcome::Settled)
        });
    start(manager);
    let maps = fixture.maps();
    create(&maps, map("web")).await;
    eventually(&maps, "web", |map| map.finalizers() == ["example.com/outside"]).await.unwrap();
    merge(
        &maps,
        "web",
        &json!({"metadata": {"finalizers": ["example.com/outside", "a.io/other"]}}),
    )
    .await;
    maps.delete("web", &DeleteParams::default()).await.unwrap();
    eventually(&maps, "web", |map| map.finalizers() == ["a.io/other"]).await.unwrap();
    assert_eq!(cleanups.load(Ordering::SeqCst), 3, "a failed cleanup is repeated");
    merge(&maps, "web", &json!({"metadata": {"finalizers": null}})).await;
    eventually_gone(&maps, "web").await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(
        !seen.is_empty() && seen.iter().all(|it| it.contains("example.com/outside")),
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_not_declared_is_an_error() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (sender, mut errors) = mpsc::unbounded();
    manager.controller::<ConfigMap>().state(sender).reconcile(
        async |_, cx: Context<mpsc::UnboundedSender<String>>| {
            let error = cx.get::<Secret>("default", "a").unwrap_err();
            cx.state().unbounded_send(error.to_string())?;
            Err(error)
        },
    );
    start(manager);
    create(&fixture.maps(), map("web")).await;
    let error = futures::StreamExt::next(&mut errors).await.unwrap();
    assert_eq!(
        error,
        "controller configmap reads the cache of Secret, but does not declare it: add `.reads::<Secret>()`, `.owns::<Secret>()` or `.watches::<Secret>(…)` to its builder"
    );
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(errors.try_recv().is_err(), "the error is terminal");
}

async fn log_key(request: controller::Request, cx: Context<Lines>) -> Result<Outcome> {
    cx.state().lock().unwrap().push(request.key.to_string());
    Ok(Outcome::Settled)
}

fn target(map: &ConfigMap) -> Vec<Key> {
    map.labels().get("target").map(|target| Key::new("", target)).into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn a_mapping_sees_both_states_and_a_predicate_filters_events() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (moved, filtered) = (Lines::default(), Lines::default());
    manager
        .controller_of_requests("targets")
        .watches(target)
        .state(Arc::clone(&moved))
        .reconcile_requests(log_key);
    manager
        .controller::<ConfigMap>()
        .when(labels_changed())
        .state(Arc::clone(&filtered))
        .reconcile_requests(log_key);
    start(manager);
    let maps = fixture.maps();
    let settle = || tokio::time::sleep(Duration::from_secs(10));
    settle().await;
    create(&maps, map("web")).await;
    settle().await;
    filtered.lock().unwrap().clear();
    merge(&maps, "web", &json!({"metadata": {"labels": {"target": "a"}}})).await;
    settle().await;
    moved.lock().unwrap().clear();
    merge(&maps, "web", &json!({"metadata": {"labels": {"target": "b"}}})).await;
    settle().await;
    assert_eq!(*moved.lock().unwrap(), ["a", "b"], "the old target learns that it is left");
    merge(&maps, "web", &json!({"data": {"k": "v"}})).await;
    settle().await;
    assert_eq!(*filtered.lock().unwrap(), ["default/web"; 2], "the data change is filtered");
}

#[tokio::test(start_paused = true)]
async fn a_kind_may_be_defined_later() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let log = Lines::default();
    let key = |object: &DynamicObject| vec![Key::new("", &object.data["spec"]["size"].to_string())];
    manager
        .controller::<ConfigMap>()
        .watches_dynamic(gadgets(), key)
        .optional()
        .state(Arc::clone(&log))
        .reconcile_requests(log_key);
    start(manager);
    create(&fixture.maps(), map("web")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(*log.lock().unwrap(), ["default/web"], "the controller runs without the kind");
    let api = install_gadgets(&fixture).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    api.create(&PostParams::default(), &gadget("g", 7)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(log.lock().unwrap()[1..], ["7"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_pass_fails_and_streams_are_sources() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let attempts = Arc::new(AtomicU32::new(0));
    let (mut keys, stream) = mpsc::channel(1);
    manager
        .controller_of_requests("slow")
        .source(stream)
        .timeout(Duration::from_secs(60))
        .state(Arc::clone(&attempts))
        .reconcile_requests(async |_, cx: Context<Arc<AtomicU32>>| {
            if cx.state().fetch_add(1, Ordering::SeqCst) < 2 {
                std::future::pending::<()>().await;
            }
            Ok(Outcome::Settled)
        });
    start(manager);
    keys.try_send(Key::new("", "a")).unwrap();
    tokio::time::sleep(Duration::from_secs(119)).await;
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_create_or_update_writes_only_differences() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    manager.controller::<ConfigMap>().reads::<Secret>().reconcile(
        async |map: Arc<ConfigMap>, cx: Context| {
            let mut secret = Secret::default();
            secret.metadata.name = map.metadata.name.clone();
            secret.metadata.namespace = map.metadata.namespace.clone();
            let labels = map.metadata.labels.clone();
            cx.create_or_update(secret, |secret| {
                secret.metadata.labels = labels;
                secret.owned_by(&*map)?;
                Ok(())
            })
            .await?;
            Ok(Outcome::Settled)
        },
    );
    start(manager);
    let (maps, secrets) = (fixture.maps(), fixture.secrets());
    create(&maps, map("web")).await;
    eventually(&secrets, "web", |_| true).await.unwrap();
    merge(&maps, "web", &json!({"data": {"k": "v"}})).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    merge(&maps, "web", &json!({"metadata": {"labels": {"l": "1"}}})).await;
    eventually(&secrets, "web", |secret| secret.labels().contains_key("l")).await.unwrap();
    let path = "/api/v1/namespaces/default/secrets";
    assert_eq!(fixture.written(), [format!("POST {path}"), format!("PUT {path}/web")]);
    assert!(!fixture.reads.lock().unwrap().contains(&format!("{path}/web")), "the cache knows it");
}

#[tokio::test(start_paused = true)]
async fn a_create_or_update_sees_what_its_pass_created() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    manager.controller::<ConfigMap>().reads::<Secret>().reconcile(
        async |map: Arc<ConfigMap>, cx: Context| {
            for value in ["1", "2"] {
                let mut secret = Secret::default();
                secret.metadata.name = map.metadata.name.clone();
                secret.metadata.namespace = map.metadata.namespace.clone();
                cx.create_or_update(secret, |secret| {
                    secret.labels_mut().insert("l".to_owned(), value.to_owned());
                    Ok(())
                })
                .await
                .unwrap();
            }
            Ok(Outcome::Settled)
        },
    );
    start(manager);
    create(&fixture.maps(), map("web")).await;
    eventually(&fixture.secrets(), "web", |secret| secret.labels()["l"] == "2").await.unwrap();
    let path = "/api/v1/namespaces/default/secrets";
    assert_eq!(fixture.written(), [format!("POST {path}"), format!("PUT {path}/web")]);
}

#[tokio::test(start_paused = true)]
async fn a_kube_client_behind_a_closed_fence_only_reads() {
    let server = TestServer::start().await.unwrap();
    let closed = LeaderFence::new(|| None);
    let client = Client::new(server.client(), Clock::system());
    let fenced: Api<ConfigMap> = Api::default_namespaced(client.fenced(&closed).kube());
    let error = fenced.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert!(format!("{error:?}").contains("Fenced"), "{error:?}");
    assert!(fenced.get_opt("a").await.unwrap().is_none());
    let open: Api<ConfigMap> = Api::default_namespaced(client.kube());
    open.create(&PostParams::default(), &map("a")).await.unwrap();
    assert!(fenced.get_opt("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cache_holds_what_its_options_select() {
    let fixture = fixture().await;
    let options = CacheOptions::<ConfigMap>::in_namespace("default")
        .labels("app=web")
        .transform(|map| map.data = None);
    let manager = fixture.manager().cache(options).build().unwrap();
    let cache = manager.cached::<ConfigMap>();
    start(manager);
    let mut web = map("web");
    web.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    web.data = Some([("k".to_owned(), "v".to_owned())].into());
    create(&fixture.maps(), web).await;
    create(&fixture.maps(), map("other")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cached = cache.list();
    assert_eq!(cached.iter().map(|map| map.name_any()).collect::<Vec<_>>(), ["web"]);
    assert_eq!((&cached[0].data, &cached[0].metadata.managed_fields), (&None, &None));
}
