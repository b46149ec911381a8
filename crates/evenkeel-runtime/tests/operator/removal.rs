//! Watches that are stopped while their controller runs, and controllers that are removed.

use crate::{Fixture, create, fixture, map, merge, start};
use evenkeel_runtime::prelude::*;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt as _;
use serde_json::json;
use std::sync::Mutex;

type Log = Arc<Mutex<Vec<String>>>;

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

/// Adds a controller of arbitrary keys that logs them.
fn logger(manager: &Manager, name: &str) -> (ControllerHandle, Log) {
    let log = Log::default();
    let controller = manager.controller_of_requests(name).state(Arc::clone(&log));
    let handle = controller.reconcile_requests(async |request: Request, cx: Context<Log>| {
        cx.state().lock().unwrap().push(request.key.name.to_string());
        Ok(Outcome::Settled)
    });
    (handle, log)
}

fn key_of(map: &ConfigMap) -> Vec<Key> {
    vec![Key::new("", &map.name_any())]
}

/// Returns the resources that have a cache.
fn cached(manager: &Manager) -> Vec<String> {
    manager.env().caches.states().into_iter().map(|cache| cache.resource).collect()
}

/// Returns the number of watches and lists of ConfigMaps since the last call.
fn reads_of_maps(fixture: &Fixture) -> usize {
    let reads = std::mem::take(&mut *fixture.reads.lock().unwrap());
    reads.iter().filter(|path| path.ends_with("/configmaps")).count()
}

async fn pause() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_nobody_needs_any_more_is_stopped() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (controller, log) = logger(&manager, "targets");
    let observer = manager.clone();
    start(manager);
    pause().await;
    let watch = controller.watches(key_of);
    create(&fixture.maps(), map("a")).await;
    pause().await;
    assert_eq!(
        (take(&log), cached(&observer)),
        (vec!["a".to_owned()], vec!["configmaps".to_owned()])
    );

    watch.stop();
    assert_eq!(cached(&observer), [""; 0]);
    create(&fixture.maps(), map("b")).await;
    let _ = reads_of_maps(&fixture);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((take(&log), reads_of_maps(&fixture)), (Vec::new(), 0), "nothing is watched");

    let first = controller.watches(key_of);
    let second = controller.watches(key_of);
    pause().await;
    assert_eq!(take(&log), ["a", "b"], "a later watch begins anew");
    first.stop();
    create(&fixture.maps(), map("c")).await;
    pause().await;
    assert_eq!(take(&log), ["c"], "the other watch is still there");
    second.stop();
    assert_eq!(cached(&observer), [""; 0]);
    controller.enqueue(Key::new("", "d"));
    pause().await;
    assert_eq!(take(&log), ["d"], "the controller works on");
}

#[tokio::test(start_paused = true)]
async fn a_cache_stays_while_somebody_reads_it() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (first, _) = logger(&manager, "first");
    let (second, log) = logger(&manager, "second");
    let observer = manager.clone();
    start(manager);
    pause().await;
    let watches = [first.watches(key_of), second.watches(key_of)];
    let cache = observer.cached::<ConfigMap>();
    let index = cache.index("name", |map, key| key(&map.name_any()));
    drop(cache);
    let [of_first, of_second] = watches;
    of_first.stop();
    create(&fixture.maps(), map("a")).await;
    pause().await;
    assert_eq!(take(&log), ["a"], "the second controller reads it");
    of_second.stop();
    create(&fixture.maps(), map("b")).await;
    pause().await;
    assert_eq!((take(&log).len(), index.count("b")), (0, 1), "the index reads it");
    observer.cached::<ConfigMap>().subscribe(|_| {});
    drop(index);
    second.watches(key_of).stop();
    assert_eq!(cached(&observer), ["configmaps"], "a handler is subscribed");
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_stopped_watch_are_still_reconciled() {
    let fixture = fixture().await;
    let manager = fixture.manager().leader_election_id("test").build().unwrap();
    let (controller, log) = logger(&manager, "targets");
    let (elected, observer) = (manager.elected(), manager.clone());
    create(&fixture.maps(), map("a")).await;
    // The cache fills while the manager waits for its lease.
    let cache = observer.cached::<ConfigMap>();
    let watch = controller.watches(key_of);
    start(manager);
    cache.synced().await;
    watch.stop();
    elected.await;
    pause().await;
    assert_eq!(take(&log), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_pass_sees_its_writes_of_a_kind_that_is_watched_later() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let log = Log::default();
    let controller = manager.controller_of_requests("counter").state(Arc::clone(&log));
    let controller = controller.reconcile_requests(async |_: Request, cx: Context<Log>| {
        let Some(map) = cx.get::<ConfigMap>("default", "n")? else { return Ok(Outcome::Settled) };
        let n: u32 = map.data.as_ref().and_then(|data| data["n"].parse().ok()).unwrap_or(0);
        cx.state().lock().unwrap().push(n.to_string());
        if n == 5 {
            return Ok(Outcome::Settled);
        }
        let mut next = ConfigMap::clone(&map);
        next.data = Some([("n".to_owned(), (n + 1).to_string())].into());
        cx.merge_patch(&*map, &next).await?;
        Ok(Outcome::again(Duration::ZERO))
    });
    start(manager);
    create(&fixture.maps(), map("n")).await;
    pause().await;
    controller.enqueue(Key::new("", "n"));
    pause().await;
    assert!(take(&log).is_empty(), "the kind is not watched yet, so that its cache is an error");
    let watch = controller.watches(|_: &ConfigMap| Vec::new());
    pause().await;
    controller.enqueue(Key::new("", "n"));
    pause().await;
    assert_eq!(take(&log), ["0", "1", "2", "3", "4", "5"]);
    watch.stop();
    merge(&fixture.maps(), "n", &json!({"data": {"n": "6"}})).await;
    controller.enqueue(Key::new("", "n"));
    pause().await;
    assert!(take(&log).is_empty(), "the kind is not watched any more");
}

#[tokio::test(start_paused = true)]
async fn a_removed_controller_finishes_its_pass_and_leaves_nothing() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let observer = manager.clone();
    let log = Log::default();
    let controller = manager
        .controller::<ConfigMap>()
        .named("slow")
        .owns::<Secret>()
        .state(Arc::clone(&log))
        .reconcile(async |map: Arc<ConfigMap>, cx: Context<Log>| {
            cx.state().lock().unwrap().push(format!("begins {}", map.name_any()));
            tokio::time::sleep(Duration::from_secs(5)).await;
            cx.state().lock().unwrap().push(format!("ends {}", map.name_any()));
            Ok(Outcome::again(Duration::from_secs(1)))
        });
    let (other, _) = logger(&manager, "other");
    start(manager);
    pause().await;
    let kept = other.watches(|_: &Secret| Vec::new());
    create(&fixture.maps(), map("a")).await;
    create(&fixture.maps(), map("b")).await;
    pause().await;
    let running = controller.clone();
    running.remove().await;
    assert_eq!(take(&log), ["begins a", "ends a"], "the pass in progress, and no key after it");
    assert_eq!(cached(&observer), ["secrets"], "the other controller reads Secrets");
    let introspection = &observer.env().introspection;
    let names: Vec<String> =
        introspection.listing().controllers.into_iter().map(|known| known.name).collect();
    assert_eq!(names, ["other"]);
    controller.enqueue(Key::new("default", "b"));
    controller.watches(key_of).stop();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(take(&log).is_empty());

    observer.controller::<ConfigMap>().named("slow").state(Arc::clone(&log)).reconcile(
        async |map: Arc<ConfigMap>, cx: Context<Log>| {
            cx.state().lock().unwrap().push(map.name_any());
            Ok(Outcome::Settled)
        },
    );
    pause().await;
    assert_eq!(take(&log), ["a", "b"], "another one has its name");
    kept.stop();
}

#[tokio::test(start_paused = true)]
async fn a_standby_removes_a_controller_that_never_ran() {
    let fixture = fixture().await;
    let leader = fixture.manager().leader_election_id("test").build().unwrap();
    let elected = leader.elected();
    start(leader);
    elected.await;
    let setup = Setup::simulated(fixture.server.clock().clone(), "other");
    let standby = fixture.manager().setup(setup).leader_election_id("test").build().unwrap();
    let observer = standby.clone();
    start(standby);
    pause().await;
    let controller = observer
        .controller::<ConfigMap>()
        .warm_up()
        .reconcile(async |_: Arc<ConfigMap>, _: Context| Ok(Outcome::Settled));
    assert_eq!(cached(&observer), ["configmaps"]);
    controller.clone().remove().await;
    assert_eq!(cached(&observer), [""; 0]);
    controller.remove().await;
}
