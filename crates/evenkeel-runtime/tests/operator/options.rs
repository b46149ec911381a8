//! Options of managers and controllers: rate limiters, panics, elections, priorities, sources, interceptors, dry runs.

use crate::{Fixture, Lines, copy, create, fixture, log_key, map, merge, start};
use evenkeel_runtime::{
    client::{ApiCall, Intercepted},
    manager::{BuildError, ManagerError},
    operator::EnqueueOptions,
    prelude::*,
    queue::{Priority, RateLimiter},
    retry::{Backoff, retry_on_conflict},
    source,
};
use evenkeel_test::{Clock, Funcs, eventually};
use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt as _;
use serde_json::json;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering},
};
use tokio::time::Instant;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn lines(log: &Lines) -> Vec<String> {
    log.lock().unwrap().clone()
}

/// Retries each key after ten seconds, and keys of the namespace `slow` after a hundred seconds.
#[derive(Default)]
struct ByNamespace {
    failures: HashMap<Key, u32>,
    forgotten: Lines,
}

impl RateLimiter<Key> for ByNamespace {
    fn when(&mut self, key: &Key, _now: Instant) -> Duration {
        *self.failures.entry(key.clone()).or_default() += 1;
        seconds(if &*key.namespace == "slow" { 100 } else { 10 })
    }

    fn forget(&mut self, key: &Key) {
        self.failures.remove(key);
        self.forgotten.lock().unwrap().push(key.to_string());
    }

    fn num_requeues(&self, key: &Key) -> u32 {
        self.failures.get(key).copied().unwrap_or_default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_authors_rate_limiter_decides_when_a_key_is_retried() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (passes, forgotten, begin) =
        (Lines::default(), Lines::default(), Clock::system().instant());
    let limiter = ByNamespace { forgotten: Arc::clone(&forgotten), ..ByNamespace::default() };
    let keys = stream::iter([Key::new("slow", "a"), Key::new("fast", "b")]);
    manager
        .controller_of_requests("limited")
        .source(keys)
        .rate_limiter(limiter)
        .state(Arc::clone(&passes))
        .reconcile_requests(move |request: Request, cx: Context<Lines>| async move {
            let at = begin.elapsed().as_secs();
            let line = format!("{} {} {at}", request.key.name, request.attempt);
            cx.state().lock().unwrap().push(line);
            if request.attempt < 2 { Err(Error::message("not yet")) } else { Ok(Outcome::Settled) }
        });
    start(manager);
    tokio::time::sleep(seconds(300)).await;
    assert_eq!(lines(&passes), ["a 0 0", "b 0 0", "b 1 10", "b 2 20", "a 1 100", "a 2 200"]);
    assert_eq!(lines(&forgotten), ["fast/b", "slow/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_stops_the_manager_if_the_controller_does_not_recover() {
    let defaults =
        [ControllerDefaults::default().recover_panic(false), ControllerDefaults::default()];
    for (defaults, by_controller) in defaults.into_iter().zip([None, Some(false)]) {
        let fixture = fixture().await;
        let manager = fixture
            .manager()
            .leader_election_id("test")
            .controller_defaults(defaults)
            .build()
            .unwrap();
        let others = Arc::new(AtomicU32::new(0));
        let controller = manager.controller::<ConfigMap>().max_concurrent(2);
        by_controller
            .into_iter()
            .fold(controller, evenkeel_runtime::operator::ControllerBuilder::recover_panic)
            .state(Arc::clone(&others))
            .reconcile(async |map: Arc<ConfigMap>, cx: Context<Arc<AtomicU32>>| {
                assert_ne!(map.name_any(), "bad", "a bug");
                // The reconcile that is in progress is finished.
                cx.clock().sleep(seconds(5)).await;
                cx.state().fetch_add(1, Ordering::SeqCst);
                Ok(Outcome::Settled)
            });
        create(&fixture.maps(), map("good")).await;
        create(&fixture.maps(), map("bad")).await;
        let error = manager.run(std::future::pending()).await.unwrap_err();
        let ManagerError::Runnable { name, source } = error else { panic!("{error}") };
        assert_eq!(name, "configmap");
        let text = source.to_string();
        assert!(text.contains("default/bad panicked") && text.contains("a bug"), "{text}");
        assert_eq!(others.load(Ordering::SeqCst), 1, "it ends in order");
        let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
            kube::Api::default_namespaced(fixture.server.client());
        let holder = leases.get("test").await.unwrap().spec.unwrap().holder_identity;
        assert_eq!(holder.as_deref(), Some(""), "the lease is released");
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_a_panic_is_a_failure_of_its_key() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let passes = Arc::new(AtomicU32::new(0));
    manager.controller::<ConfigMap>().state(Arc::clone(&passes)).reconcile(
        async |_, cx: Context<Arc<AtomicU32>>| {
            assert!(cx.state().fetch_add(1, Ordering::SeqCst) > 1, "a bug");
            Ok(Outcome::Settled)
        },
    );
    start(manager);
    create(&fixture.maps(), map("web")).await;
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(passes.load(Ordering::SeqCst), 3);
}

/// Starts a leader. Returns a manager that needs the same lease and has not been started.
async fn beside_a_leader(fixture: &Fixture) -> Manager {
    let leader = fixture.manager().leader_election_id("test").build().unwrap();
    let elected = leader.elected();
    start(leader);
    elected.await;
    let setup = Setup::simulated(fixture.server.clock().clone(), "standby");
    fixture.manager().setup(setup).leader_election_id("test").build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_controller_without_leader_election_writes_in_a_standby() {
    let fixture = fixture().await;
    let standby = beside_a_leader(&fixture).await;
    standby.controller::<ConfigMap>().owns::<Secret>().needs_leader_election(false).reconcile(copy);
    let passes = Lines::default();
    standby
        .controller::<ConfigMap>()
        .named("leaders")
        .state(Arc::clone(&passes))
        .reconcile_requests(log_key);
    let elected = standby.elected();
    start(standby);
    create(&fixture.maps(), map("web")).await;
    eventually(&fixture.secrets(), "web", |_| true).await.unwrap();
    let waited = tokio::time::timeout(seconds(60), elected).await;
    assert!(waited.is_err() && lines(&passes).is_empty(), "the other controller is the leader's");
}

/// Starts a leader, and a standby whose controller logs its keys. Returns the standby.
async fn standby(fixture: &Fixture, passes: &Lines, warms_up: bool) -> Manager {
    let standby = beside_a_leader(fixture).await;
    let controller = standby.controller::<ConfigMap>().state(Arc::clone(passes));
    let controller = if warms_up { controller.warm_up() } else { controller };
    controller.reconcile_requests(log_key);
    start(standby.clone());
    standby
}

#[tokio::test(start_paused = true)]
async fn a_warm_up_fills_the_queue_before_the_election() {
    for (warms_up, expected) in [(true, 2), (false, 0)] {
        let (fixture, passes) = (fixture().await, Lines::default());
        create(&fixture.maps(), map("a")).await;
        create(&fixture.maps(), map("b")).await;
        let standby = standby(&fixture, &passes, warms_up).await;
        tokio::time::sleep(seconds(60)).await;
        let report = standby.env().introspection.answer("configmap", "");
        let report: serde_json::Value = serde_json::from_slice(report.body()).unwrap();
        let ready = &report["queue"]["ready"];
        assert_eq!(ready, expected, "{report}");
        assert_eq!(lines(&passes).len(), 0, "no pass without the lease");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_reconciled_by_the_priorities_of_their_watch() {
    let fixture = fixture().await;
    for name in ["low", "urgent", "plain"] {
        create(&fixture.maps(), map(name)).await;
    }
    let manager = fixture.manager().build().unwrap();
    let passes = Lines::default();
    // The first key occupies the only worker while the other keys arrive.
    let (keys, received) = source::channel();
    assert!(keys.send(Key::new("", "first")));
    let handle = manager
        .controller_of_requests("keys")
        .watches_with_priority(|map: &ConfigMap| {
            let name = map.name_any();
            let priority = match &*name {
                "urgent" => Priority(10),
                "low" => Priority(-200),
                _ => Priority::NORMAL,
            };
            vec![(Key::new("", &name), priority), (Key::new("", &name), Priority(-300))]
        })
        .source(received)
        .state(Arc::clone(&passes))
        .reconcile_requests(async |request: Request, cx: Context<Lines>| {
            log_key(request, cx.clone()).await?;
            cx.clock().sleep(seconds(10)).await;
            Ok(Outcome::Settled)
        });
    start(manager);
    tokio::time::sleep(seconds(60)).await;
    let initial = std::mem::take(&mut *passes.lock().unwrap());
    let low = initial.iter().position(|name| name == "low").unwrap();
    assert_eq!((initial.len(), low), (4, 3), "{initial:?}: others of the initial list are equal");

    assert!(keys.send(Key::new("", "first")));
    tokio::time::sleep(seconds(1)).await;
    for name in ["low", "plain", "urgent"] {
        merge(&fixture.maps(), name, &json!({"data": {"k": "v"}})).await;
    }
    handle.enqueue_with(
        Key::new("", "handle"),
        EnqueueOptions { priority: Priority(5), ..EnqueueOptions::default() },
    );
    let later = EnqueueOptions { after: seconds(100), ..EnqueueOptions::default() };
    handle.enqueue_with(Key::new("", "later"), later);
    tokio::time::sleep(seconds(99)).await;
    assert_eq!(lines(&passes), ["first", "urgent", "handle", "plain", "low"]);
    tokio::time::sleep(seconds(2)).await;
    assert_eq!(lines(&passes)[5..], ["later"]);
}

#[tokio::test(start_paused = true)]
async fn a_timer_enqueues_its_key_each_period() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let passes = Lines::default();
    let clock = manager.env().clock.clone();
    manager
        .controller_of_requests("timer")
        .source(source::every(clock, seconds(60), Key::new("", "tick")))
        .source_with_priority(stream::iter([(Key::new("", "start"), Priority(3))]))
        .state(Arc::clone(&passes))
        .reconcile_requests(log_key);
    start(manager);
    tokio::time::sleep(seconds(200)).await;
    assert_eq!(lines(&passes), ["start", "tick", "tick", "tick"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_never_ends_does_not_hold_up_the_stop() {
    let fixture = fixture().await;
    let manager = fixture.manager().grace_period(seconds(300)).build().unwrap();
    let (sender, keys) = source::channel();
    manager
        .controller_of_requests("endless")
        .source(keys)
        .reconcile_requests(async |_: Request, _: Context| Ok(Outcome::Settled));
    let begin = Clock::system().instant();
    manager.run(tokio::time::sleep(seconds(10))).await.unwrap();
    assert!(begin.elapsed() < seconds(60), "{:?}", begin.elapsed());
    assert!(!sender.send(Key::new("", "late")), "nobody reads it");
}

#[tokio::test(start_paused = true)]
async fn a_field_manager_is_that_of_all_writes() {
    let fixture = fixture().await;
    for (name, expected) in [(None, "test"), (Some("shop"), "shop")] {
        let builder = fixture.manager();
        let builder = name
            .into_iter()
            .fold(builder, evenkeel_runtime::manager::ManagerBuilder::field_manager);
        let manager = builder.build().unwrap();
        assert_eq!(manager.field_manager(), expected);
        manager.controller::<ConfigMap>().owns::<Secret>().reconcile(
            async |map: Arc<ConfigMap>, cx: Context| {
                let mut secret = Secret::default();
                secret.metadata.name = map.metadata.name.clone();
                secret.metadata.namespace = map.metadata.namespace.clone();
                let secret = cx.create(&secret).await?;
                let mut secret = Secret::clone(&secret);
                secret.labels_mut().insert("updated".to_owned(), "1".to_owned());
                let old = cx.update(&secret).await?;
                let mut new = Secret::clone(&old);
                new.labels_mut().insert("patched".to_owned(), "1".to_owned());
                cx.merge_patch(&*old, &new).await?;
                let mut applied = Secret::default();
                applied.metadata.name = map.metadata.name.clone();
                applied.metadata.namespace = map.metadata.namespace.clone();
                applied.labels_mut().insert("applied".to_owned(), "1".to_owned());
                cx.apply(&applied).await?;
                Ok(Outcome::Settled)
            },
        );
        let tasks = evenkeel_runtime::tasks::Tasks::new();
        let stop = tasks.token();
        tasks.spawn_finite("manager", async move {
            manager.run(stop.cancelled_owned()).await.unwrap();
        });
        create(&fixture.maps(), map(expected)).await;
        let secret = eventually(&fixture.secrets(), expected, |secret| {
            secret.labels().contains_key("applied")
        })
        .await
        .unwrap();
        let managers = secret.metadata.managed_fields.unwrap();
        let names: Vec<_> = managers.iter().map(|fields| fields.manager.as_deref()).collect();
        assert!(names.len() == 2 && names.iter().all(|name| *name == Some(expected)), "{names:?}");
        tasks.shut_down(seconds(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_makes_requests_fail() {
    let fixture = fixture().await;
    let funcs = Funcs::new().fail("patch", "secrets", 1..=2, Funcs::internal_error()).on(
        "list",
        "secrets",
        |call, number| match number {
            1 => Intercepted::Disconnect(format!("{} is lost", call.resource)),
            _ => Intercepted::Pass,
        },
    );
    let manager = fixture.manager().interceptor(funcs).build().unwrap();
    manager.controller::<ConfigMap>().owns::<Secret>().reconcile(copy);
    start(manager);
    create(&fixture.maps(), map("web")).await;
    eventually(&fixture.secrets(), "web", |_| true).await.unwrap();
    let patch = "PATCH /api/v1/namespaces/default/secrets/web";
    assert_eq!(fixture.written(), [patch], "the refused ones were not sent");
}

#[tokio::test(start_paused = true)]
async fn a_write_is_retried_after_a_conflict() {
    let fixture = fixture().await;
    create(&fixture.maps(), map("web")).await;
    let calls = Lines::default();
    let log = Arc::clone(&calls);
    let funcs = Funcs::new().on("*", "configmaps", move |call: &ApiCall<'_>, number| {
        log.lock().unwrap().push(call.verb.to_owned());
        if call.verb == "update" && number < 5 {
            return Intercepted::Fail(Funcs::conflict());
        }
        Intercepted::Pass
    });
    let maps: kube::Api<ConfigMap> =
        kube::Api::default_namespaced(fixture.server.intercepted(funcs));
    let changed = retry_on_conflict(fixture.server.clock(), Backoff::DEFAULT_RETRY, || async {
        let mut map = maps.get("web").await?;
        map.labels_mut().insert("changed".to_owned(), "1".to_owned());
        maps.replace("web", &Default::default(), &map).await
    })
    .await
    .unwrap();
    assert!(changed.labels().contains_key("changed"));
    assert_eq!(lines(&calls), ["get", "update", "get", "update", "get", "update"]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_records_writes_and_sends_none() {
    let fixture = fixture().await;
    create(&fixture.maps(), map("web")).await;
    fixture.written();
    let manager = fixture.manager().leader_election_id("test").dry_run().build().unwrap();
    let writes = manager.dry_run_writes().unwrap().clone();
    assert!(manager.elector().is_none());
    manager
        .controller::<ConfigMap>()
        .owns::<Secret>()
        .finalizer("example.com/outside", async |_, _: Context| Ok(()))
        .reconcile(copy);
    manager.run(tokio::time::sleep(seconds(60))).await.unwrap();
    assert_eq!(fixture.written(), [""; 0], "neither objects nor a lease");
    let lines: Vec<String> = writes.writes().iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("patch configmaps default/web"), "{lines:?}");
    assert!(lines[0].contains("example.com/outside"), "{lines:?}");
    assert_eq!(lines[1], "create secrets default/web", "the pass goes on");
    assert!(fixture.manager().build().unwrap().dry_run_writes().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_records_an_apply_as_a_create() {
    let fixture = fixture().await;
    create(&fixture.maps(), map("web")).await;
    fixture.written();
    let manager = fixture.manager().dry_run().build().unwrap();
    let writes = manager.dry_run_writes().unwrap().clone();
    manager.controller::<ConfigMap>().owns::<Secret>().reconcile(copy);
    manager.run(tokio::time::sleep(seconds(60))).await.unwrap();
    let lines: Vec<String> = writes.writes().iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["create secrets default/web"]);
    assert_eq!((writes.events(), fixture.written()), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_needs_the_managers_own_client() {
    let fixture = fixture().await;
    let client = evenkeel_runtime::client::Client::new(fixture.kube.clone(), Clock::system());
    let refused = fixture.manager().client(client).dry_run().build();
    assert!(matches!(refused, Err(BuildError::DryRunOfClient)));
}

#[tokio::test(start_paused = true)]
async fn a_source_ends_without_its_senders() {
    let (keys, received) = source::channel();
    let clone = keys.clone();
    assert!(keys.send(Key::new("", "a")) && clone.send(Key::new("", "b")));
    drop((keys, clone));
    let received: Vec<Key> = futures::StreamExt::collect(received).await;
    assert_eq!(received, [Key::new("", "a"), Key::new("", "b")]);
    let (keys, received) = source::channel();
    drop(received);
    assert!(!keys.send(Key::new("", "a")), "nobody receives it");
}
