//! A manager's life cycle for operator authors: election, late additions, limits, namespaces, reports.

use crate::{copy, create, fixture, map, start};
use evenkeel_runtime::{
    introspect::Subject,
    manager::{ManagerError, UnsyncedCache},
    prelude::*,
};
use evenkeel_test::eventually;
use futures::channel::mpsc;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Secret},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};

/// Returns a kind that the server does not serve.
fn gadgets() -> Kind {
    Kind::new("example.com", "v1", "Gadget", "gadgets", true)
}

async fn settled(_: Request, _: Context) -> Result<Outcome> {
    Ok(Outcome::Settled)
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_added_later_starts_at_once() {
    let fixture = fixture().await;
    let manager = fixture.manager().leader_election_id("test").build().unwrap();
    let (elected, late) = (manager.elected(), manager.clone());
    start(manager);
    elected.await;
    create(&fixture.maps(), map("web")).await;
    late.controller::<ConfigMap>().owns::<Secret>().reconcile(copy);
    eventually(&fixture.secrets(), "web", |_| true).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_is_elected_while_another_process_leads() {
    let fixture = fixture().await;
    let first = fixture.manager().leader_election_id("test").build().unwrap();
    let elected = first.elected();
    start(first);
    elected.await;
    let setup = Setup::simulated(fixture.server.clock().clone(), "other");
    let second = fixture.manager().setup(setup).leader_election_id("test").build().unwrap();
    let elected = second.elected();
    start(second);
    let waited = tokio::time::timeout(Duration::from_secs(3600), elected).await;
    assert!(waited.is_err(), "the first process still leads");
}

#[tokio::test(start_paused = true)]
async fn caches_that_do_not_fill_stop_the_manager_with_their_reasons() {
    let fixture = fixture().await;
    let nobody = fixture.server.client_as("nobody", ["system:authenticated"]);
    let setup = Setup::simulated(fixture.server.clock().clone(), "me");
    let manager = Manager::builder(nobody).setup(setup).build().unwrap();
    manager.controller::<ConfigMap>().reconcile_requests(settled);
    manager.controller_of_dynamic(gadgets()).reconcile_requests(settled);
    let ended = manager.run(std::future::pending()).await;
    let Err(ManagerError::CacheSync(error)) = ended else { panic!("{ended:?}") };
    assert_eq!(error.timeout, Duration::from_secs(120));
    let text = error.to_string();
    let [maps, gadgets] = &error.caches[..] else { panic!("{text}") };
    let is = |cache: &UnsyncedCache, resource: &str, reason: &str| {
        cache.resource == resource && cache.reason.contains(reason)
    };
    assert!(is(maps, "configmaps", "forbidden"), "{text}");
    assert!(is(gadgets, "gadgets.example.com", "forbidden"), "{text}");

    let manager = fixture.manager().cache_sync_timeout(Duration::from_secs(5)).build().unwrap();
    manager.controller_of_dynamic(self::gadgets()).reconcile_requests(settled);
    let error = manager.run(std::future::pending()).await.unwrap_err().to_string();
    assert!(
        error.starts_with("caches not filled within 5s: gadgets.example.com: the server does not"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_controller_has_the_same_limit_and_none_waits_forever() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (elected, late) = (manager.elected(), manager.clone());
    let add = async move {
        elected.await;
        late.controller_of_dynamic(gadgets()).reconcile_requests(settled);
        std::future::pending::<()>().await;
    };
    let error = manager.run(add).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.starts_with("caches not filled within 120s: gadgets.example.com"), "{source}");

    let manager = fixture.manager().cache_sync_timeout(None).build().unwrap();
    manager.controller_of_dynamic(gadgets()).reconcile_requests(settled);
    manager.run(tokio::time::sleep(Duration::from_secs(3600))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn controllers_have_the_managers_defaults() {
    let fixture = fixture().await;
    let defaults = ControllerDefaults::default()
        .max_concurrent(3)
        .max_retries(1)
        .timeout(Duration::from_secs(60));
    let manager = fixture.manager().controller_defaults(defaults).build().unwrap();
    let (mut keys, stream) = mpsc::channel(1);
    let attempts = Arc::new(AtomicU32::new(0));
    manager
        .controller_of_requests("slow")
        .source(stream)
        .state(Arc::clone(&attempts))
        .reconcile_requests(async |_, cx: Context<Arc<AtomicU32>>| {
            cx.state().fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            std::future::pending().await
        });
    manager.controller_of_requests("wide").max_concurrent(5).reconcile_requests(settled);
    let registry = manager.registry().clone();
    start(manager);
    keys.try_send(Key::new("", "a")).unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(attempts.load(std::sync::atomic::Ordering::SeqCst), 2, "one retry");
    let value = |name: &str, controller: &str| {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metric = family
            .get_metric()
            .iter()
            .find(|metric| metric.get_label().iter().any(|label| label.value() == controller));
        let metric = metric.unwrap();
        metric.get_counter().get_value() + metric.get_gauge().get_value()
    };
    let workers = "controller_runtime_max_concurrent_reconciles";
    assert_eq!((value(workers, "slow"), value(workers, "wide")), (3.0, 5.0));
    assert_eq!(value("controller_runtime_reconcile_timeouts_total", "slow"), 2.0);
}

/// Namespaces of objects, each with a number.
type Steps = Arc<Mutex<Vec<(String, u32)>>>;

/// Increments the number in a ConfigMap up to 5, and logs each step.
async fn count_up(map: Arc<ConfigMap>, cx: Context<Steps>) -> Result<Outcome> {
    let n = map.data.as_ref().and_then(|data| data["n"].parse().ok()).unwrap_or(0);
    cx.state().lock().unwrap().push((map.namespace().unwrap_or_default(), n));
    if n < 5 {
        let mut next = ConfigMap::clone(&map);
        next.data = Some([("n".to_owned(), (n + 1).to_string())].into());
        cx.merge_patch(&*map, &next).await?;
    }
    Ok(Outcome::Settled)
}

#[tokio::test(start_paused = true)]
async fn one_cache_holds_several_namespaces_and_shows_the_writes_in_each() {
    let fixture = fixture().await;
    let client = fixture.server.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["a", "b", "c"] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
        let map = serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"n": "0"}}));
        maps.create(&PostParams::default(), &map.unwrap()).await.unwrap();
    }
    let options = CacheOptions::<ConfigMap>::in_namespaces(["b", "a"]).fields("metadata.name=m");
    let manager = fixture.manager().cache(options).build().unwrap();
    let (cache, log) = (manager.cached::<ConfigMap>(), Arc::default());
    manager.controller::<ConfigMap>().state(Arc::clone(&log)).reconcile(count_up);
    start(manager);
    cache.synced().await;
    let in_namespace = |name: &str| cache.namespace(name).len();
    assert_eq!((in_namespace("a"), in_namespace("b"), in_namespace("c")), (1, 1, 0));
    for name in ["a", "b"] {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
        eventually(&maps, "m", |map| map.data.as_ref().unwrap()["n"] == "5").await.unwrap();
    }
    // This is well before the next bookmark, without which another namespace's watch does not advance.
    tokio::time::sleep(Duration::from_secs(5)).await;
    for name in ["a", "b"] {
        let steps: Vec<u32> = {
            let log = log.lock().unwrap();
            log.iter().filter(|(namespace, _)| namespace == name).map(|(_, n)| *n).collect()
        };
        assert_eq!(steps, [0, 1, 2, 3, 4, 5], "each pass over {name} sees the write before");
    }
}

#[tokio::test(start_paused = true)]
async fn a_manager_of_namespaces_needs_no_permissions_elsewhere() {
    let fixture = fixture().await;
    let admin = fixture.server.client();
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::namespaced(admin, "default");
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "operator"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "operator"}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
    });
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let operator = fixture.server.client_as("operator", ["system:authenticated"]);
    let setup = Setup::simulated(fixture.server.clock().clone(), "me");
    let manager = Manager::builder(operator).setup(setup).namespaces(["default"]).build().unwrap();
    manager.controller::<ConfigMap>().owns::<Secret>().reconcile(copy);
    start(manager);
    create(&fixture.maps(), map("web")).await;
    eventually(&fixture.secrets(), "web", |_| true).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_report_shows_the_last_pass_its_writes_and_its_cause() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let introspection = manager.env().introspection.clone();
    manager.controller::<ConfigMap>().owns::<Secret>().reconcile(
        async |map: Arc<ConfigMap>, cx: Context| {
            copy(Arc::clone(&map), cx).await?;
            match map.labels().get("fails") {
                Some(_) => Err(Error::message("the label forbids it")),
                None => Ok(Outcome::again(Duration::from_secs(300))),
            }
        },
    );
    start(manager);
    let maps = fixture.maps();
    create(&maps, map("web")).await;
    eventually(&fixture.secrets(), "web", |_| true).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let report = || {
        let subject = Subject::new("", "ConfigMap", "default", "web");
        introspection.object_reports(&subject).into_iter().next().unwrap()
    };
    let last = report().last.unwrap();
    assert_eq!(last.did, ["apply Secret default/web"]);
    assert_eq!(last.ended, "again in 5m0s");
    assert_eq!(last.because.as_deref(), Some("Secret default/web was added"));
    let waits = report().waits;
    assert!(waits.iter().any(|wait| wait.starts_with("comes again in 4m")), "{waits:?}");

    let patch = Patch::Merge(json!({"metadata": {"labels": {"fails": "1"}}, "data": {"k": "v"}}));
    maps.patch("web", &PatchParams::default(), &patch).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let failed = report();
    let last = failed.last.unwrap();
    assert_eq!((&*last.ended, last.error.as_deref()), ("failed", Some("the label forbids it")));
    assert_eq!(last.because.as_deref(), Some("the last pass failed"));
    let queue = failed.queue.unwrap();
    assert_eq!(queue.because.as_deref(), Some("the last pass failed"));
    assert!(queue.failures > 1 && queue.delayed_until.is_some(), "{queue:?}");
}

#[tokio::test(start_paused = true)]
async fn a_running_controller_gets_another_watch() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (elected, log) = (manager.elected(), Arc::new(Mutex::new(Vec::new())));
    let passes = Arc::clone(&log);
    let controller = manager.controller_of_requests("targets").reconcile_requests(
        move |request: Request, _: Context| {
            passes.lock().unwrap().push(request.key.to_string());
            async { Ok(Outcome::Settled) }
        },
    );
    start(manager);
    elected.await;
    controller.enqueue(Key::new("", "first"));
    create(&fixture.maps(), map("before")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    controller.watches(|map: &ConfigMap| vec![Key::new("", &map.name_any())]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    create(&fixture.maps(), map("after")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*log.lock().unwrap(), ["first", "before", "after"]);
}

#[tokio::test(start_paused = true)]
async fn events_of_the_newer_group_have_an_action_and_a_related_object() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    manager.controller::<ConfigMap>().series_events().reconcile(
        async |map: Arc<ConfigMap>, cx: Context| {
            cx.event(&*map, "Seen", "the map was seen");
            cx.event_related(&*map, &*map, "Copy", "Copied", "the map was copied");
            Ok(Outcome::Settled)
        },
    );
    start(manager);
    create(&fixture.maps(), map("web")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let events: Api<Event> = Api::default_namespaced(fixture.server.client());
    let mut events = events.list(&Default::default()).await.unwrap().items;
    events.sort_by(|a, b| a.reason.cmp(&b.reason));
    let described: Vec<_> = events
        .iter()
        .map(|event| {
            let related = event.related.as_ref().and_then(|related| related.name.as_deref());
            (event.reason.as_deref(), event.action.as_deref(), related)
        })
        .collect();
    let copied = (Some("Copied"), Some("Copy"), Some("web"));
    assert_eq!(described, [copied, (Some("Seen"), Some("Reconcile"), None)]);
    assert_eq!(events[0].reporting_instance.as_deref(), Some("test-me"));
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_asks_for_another_at_once_gets_it_with_backoff() {
    const LIMIT: u32 = 100;
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let passes = Arc::new(AtomicU32::new(0));
    let controller = manager.controller_of_requests("eager").state(Arc::clone(&passes));
    let controller = controller.reconcile_requests(async |_, cx: Context<Arc<AtomicU32>>| {
        match cx.state().fetch_add(1, Ordering::SeqCst) {
            // Without a delay, the test's virtual time would not advance.
            LIMIT.. => Ok(Outcome::Settled),
            _ => Ok(Outcome::again(Duration::ZERO)),
        }
    });
    start(manager);
    tokio::time::sleep(Duration::from_secs(1)).await;
    controller.enqueue(Key::new("", "key"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(passes.load(Ordering::SeqCst), 8, "after 0, 5, 15, 35, 75, 155, 315 and 635 ms");
}
