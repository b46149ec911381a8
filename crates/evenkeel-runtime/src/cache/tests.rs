//! Tests of a cache against a server that misbehaves.

use super::{CacheEvent, Caches, Full};
use crate::{
    client::{Client, Metadata},
    clock::Clock,
    scripted::{Answer, Script, Tail},
    tasks::Tasks,
};
use evenkeel_api::{Kind, Meta, View as _};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

type Map = Full<ConfigMap>;

fn object(name: &str, version: u32) -> Value {
    json!({ "metadata": { "name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string() } })
}

fn event(kind: &str, name: &str, version: u32) -> Value {
    json!({ "type": kind, "object": object(name, version) })
}

fn bookmark(version: u32, initial_end: bool) -> Value {
    let annotations =
        if initial_end { json!({ "k8s.io/initial-events-end": "true" }) } else { json!({}) };
    let metadata = json!({ "resourceVersion": version.to_string(), "creationTimestamp": null, "annotations": annotations });
    json!({ "type": "BOOKMARK", "object": { "kind": "ConfigMap", "metadata": metadata } })
}

fn expired() -> Value {
    json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" } })
}

struct World {
    script: Script,
    caches: Caches,
    notifications: Arc<Mutex<Vec<String>>>,
    registry: prometheus::Registry,
    _tasks: Tasks,
}

fn world(answers: impl IntoIterator<Item = Answer>) -> (World, super::Cache<Map>) {
    let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let (script, tasks, registry) =
        (Script::new(answers), Tasks::new(), prometheus::Registry::new());
    let caches = Caches::new(script.client(&clock), clock, &registry);
    let cache = caches.of::<Map>();
    let notifications = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&notifications);
    cache.subscribe(move |event| {
        let text = match event {
            CacheEvent::Added { object, initial: true } => {
                format!("initial {}", object.meta().name)
            }
            CacheEvent::Added { object, initial: false } => format!("added {}", object.meta().name),
            CacheEvent::Updated { old, new } => {
                format!(
                    "updated {} {}-{}",
                    new.meta().name,
                    old.meta().version(),
                    new.meta().version()
                )
            }
            CacheEvent::Deleted(object) => {
                format!("deleted {} {}", object.meta().name, object.meta().version())
            }
        };
        log.lock().unwrap().push(text);
    });
    caches.start(&tasks);
    (World { script, caches, notifications, registry, _tasks: tasks }, cache)
}

impl World {
    fn notifications(&self) -> Vec<String> {
        let mut notifications = std::mem::take(&mut *self.notifications.lock().unwrap());
        notifications.sort();
        notifications
    }
}

/// Waits until the script is exhausted.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(200)).await;
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_continues_as_a_watch() {
    let events = [
        event("ADDED", "a", 3),
        event("ADDED", "b", 4),
        bookmark(5, true),
        event("MODIFIED", "a", 6),
        event("DELETED", "b", 7),
        event("ADDED", "c", 8),
        bookmark(11, false),
    ];
    let (world, cache) = world([Answer::events(&events, Tail::Hang)]);
    cache.synced().await;
    settle().await;
    assert_eq!(
        world.notifications(),
        ["added c", "deleted b 7", "initial a", "initial b", "updated a 3-6"]
    );
    assert_eq!(cache.version(), 11);
    assert_eq!(world.caches.resource_version_of(&Map::kind()), Some(11));
    assert_eq!(
        (cache.len(), cache.namespace("ns").len(), cache.get("ns", "a").unwrap().meta().version()),
        (2, 2, 6)
    );
    let [request] = &world.script.seen()[..] else { panic!("{:?}", world.script.seen()) };
    for part in [
        "GET /api/v1/configmaps?",
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
        "timeoutSeconds=",
    ] {
        assert!(request.contains(part), "{request} lacks {part}");
    }
    let shown = world.registry.gather();
    let gauge =
        shown.iter().find(|family| family.name() == "informer_store_resource_version").unwrap();
    assert_eq!(gauge.get_metric()[0].get_gauge().get_value(), 11.0);
}

#[tokio::test(start_paused = true)]
async fn an_existing_cache_is_found_and_no_other_is_made() {
    let (world, cache) = world([Answer::events(&[bookmark(5, true)], Tail::Hang)]);
    cache.synced().await;
    let existing = world.caches.existing::<Map>().expect("it was requested");
    assert_eq!(existing.version(), cache.version());
    assert!(world.caches.existing::<Full<k8s_openapi::api::core::v1::Secret>>().is_none());
    assert_eq!(world.caches.states().len(), 1, "a question makes no cache");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_in_pages() {
    let page = |items: Vec<Value>, more: &str| {
        json!({ "metadata": { "resourceVersion": "20", "continue": more }, "items": items })
            .to_string()
    };
    let (world, cache) = world([
        Answer::new(422, r#"{"kind":"Status","reason":"Invalid","code":422}"#),
        Answer::new(200, page(vec![object("a", 3)], "next")),
        Answer::new(200, page(vec![object("b", 4)], "")),
        Answer::events(&[event("MODIFIED", "b", 21)], Tail::Hang),
    ]);
    cache.synced().await;
    settle().await;
    assert_eq!(world.notifications(), ["initial a", "initial b", "updated b 4-21"]);
    let seen = world.script.seen();
    assert!(seen[1].ends_with("/configmaps?limit=500"), "{seen:?}");
    assert!(seen[2].ends_with("/configmaps?limit=500&continue=next"), "{seen:?}");
    assert!(seen[3].contains("?resourceVersion=20&watch=true"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_can_be_turned_off() {
    let list =
        json!({ "metadata": { "resourceVersion": "20" }, "items": [object("a", 3)] }).to_string();
    let (script, tasks) = (
        Script::new([
            Answer::new(200, list.as_str()),
            Answer::events(&[event("MODIFIED", "a", 21)], Tail::Hang),
        ]),
        Tasks::new(),
    );
    let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let caches = Caches::new(script.client(&clock), clock, &prometheus::Registry::new());
    caches.list_in_pages();
    let cache = caches.of::<Map>();
    caches.start(&tasks);
    cache.synced().await;
    settle().await;
    assert_eq!(cache.version(), 21);
    let seen = script.seen();
    assert!(seen[0].ends_with("/configmaps?limit=500"), "{seen:?}");
    assert!(seen[1].contains("?resourceVersion=20&watch=true"), "{seen:?}");
    assert!(!seen[1].contains("sendInitialEvents"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn all_caches_are_resynced_with_the_period_of_the_program() {
    let events = [event("ADDED", "a", 3), bookmark(5, true)];
    let (script, tasks) = (Script::new([Answer::events(&events, Tail::Hang)]), Tasks::new());
    let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let caches = Caches::new(script.client(&clock), clock, &prometheus::Registry::new());
    caches.resync_all_every(Duration::from_secs(60));
    let cache = caches.of::<Map>();
    let resyncs = Arc::new(Mutex::new(0));
    let count = Arc::clone(&resyncs);
    cache.subscribe(move |event| {
        if let CacheEvent::Updated { old, new } = event {
            assert!(Arc::ptr_eq(old, new), "nothing changed");
            *count.lock().unwrap() += 1;
        }
    });
    caches.start(&tasks);
    cache.synced().await;
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(*resyncs.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_send_initial_events_is_listed_in_pages() {
    let list =
        json!({ "metadata": { "resourceVersion": "20" }, "items": [object("a", 3)] }).to_string();
    for tail in [Tail::Hang, Tail::End, Tail::Break] {
        let old = Answer::events(&[event("ADDED", "a", 3)], tail);
        let (world, cache) = world([old, Answer::new(200, list.as_str())]);
        let start = Clock::system().instant();
        cache.synced().await;
        assert!(start.elapsed() <= Duration::from_secs(61), "{:?}", start.elapsed());
        assert_eq!((world.notifications(), cache.version()), (vec!["initial a".to_owned()], 20));
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_a_restore_made_too_large_is_dropped() {
    let first = Answer::events(
        &[event("ADDED", "a", 90), bookmark(90, true), bookmark(91, false)],
        Tail::End,
    );
    let too_large = r#"{"kind":"Status","reason":"Timeout","code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
    let second = Answer::events(&[event("ADDED", "b", 5), bookmark(7, true)], Tail::Hang);
    let (world, cache) = world([first, Answer::new(504, too_large), second]);
    cache.synced().await;
    settle().await;
    assert_eq!(world.notifications(), ["added b", "deleted a 90", "initial a"]);
    assert_eq!(cache.version(), 7);
}

#[tokio::test(start_paused = true)]
async fn expired_pages_are_listed_again_in_one_page() {
    let list = |more: &str| json!({ "metadata": { "resourceVersion": "20", "continue": more }, "items": [object("a", 3)] });
    let (world, cache) = world([
        Answer::new(400, ""),
        Answer::new(200, list("next").to_string()),
        Answer::new(410, r#"{"kind":"Status","reason":"Expired","code":410}"#),
        Answer::new(200, list("").to_string()),
    ]);
    cache.synced().await;
    assert_eq!(world.notifications(), ["initial a"]);
    assert!(world.script.seen()[3].ends_with("/configmaps"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_is_listed_again_and_only_differences_are_reported() {
    let first = [
        event("ADDED", "gone", 1),
        event("ADDED", "same", 2),
        event("ADDED", "changed", 3),
        bookmark(3, true),
    ];
    let second = [
        event("ADDED", "same", 2),
        event("ADDED", "changed", 9),
        event("ADDED", "new", 8),
        bookmark(9, true),
    ];
    let mut one = Answer::events(&first, Tail::End);
    one.chunks.push(format!("{}\n", expired()).into_bytes());
    let (world, cache) = world([one, Answer::events(&second, Tail::Hang)]);
    let start = Clock::system().instant();
    cache.synced().await;
    let same = cache.get("ns", "same").unwrap();
    settle().await;
    assert_eq!(
        world.notifications(),
        [
            "added new",
            "deleted gone 1",
            "initial changed",
            "initial gone",
            "initial same",
            "updated changed 3-9"
        ]
    );
    assert!(Arc::ptr_eq(&same, &cache.get("ns", "same").unwrap()), "an unchanged object is kept");
    assert!(world.script.seen()[1].contains("sendInitialEvents=true"));
    assert!(start.elapsed() > Duration::from_millis(800));
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_continues_from_the_last_version() {
    let mut broken = Answer::events(
        &[event("ADDED", "a", 3), bookmark(5, true), event("MODIFIED", "a", 6)],
        Tail::End,
    );
    broken.chunks.push(b"{\"type\":\"MODI\n".to_vec());
    let reset = Answer::events(&[event("MODIFIED", "a", 7)], Tail::Break);
    let cut = Answer::new(200, &br#"{"type":"MODIFIED","obj"#[..]);
    let last = Answer::events(&[event("MODIFIED", "a", 8)], Tail::Hang);
    let (world, cache) = world([broken, reset, cut, last]);
    cache.synced().await;
    settle().await;
    assert_eq!(
        world.notifications(),
        ["initial a", "updated a 3-6", "updated a 6-7", "updated a 7-8"]
    );
    let from: Vec<_> = world.script.seen()[1..]
        .iter()
        .map(|request| request.contains("resourceVersion=6"))
        .collect();
    assert_eq!(from, [true, false, false], "{:?}", world.script.seen());
    assert!(
        world.script.seen()[2].contains("resourceVersion=7")
            && world.script.seen()[3].contains("resourceVersion=7")
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_is_skipped() {
    let bad = |kind: &str, name: &str, version: u32| {
        let mut event = event(kind, name, version);
        event["object"]["data"] = json!(7);
        event
    };
    let events = [
        bad("ADDED", "bad", 1),
        event("ADDED", "good", 2),
        bookmark(3, true),
        bad("MODIFIED", "good", 4),
        event("ADDED", "other", 5),
        bad("DELETED", "good", 6),
    ];
    let (world, cache) = world([Answer::events(&events, Tail::Hang)]);
    cache.synced().await;
    settle().await;
    assert_eq!(world.notifications(), ["added other", "deleted good 2", "initial good"]);
    assert_eq!(cache.version(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_waits_while_others_work() {
    let forbidden = || Answer::new(403, r#"{"kind":"Status","reason":"Forbidden","code":403}"#);
    let (world, cache) = world([
        // In each attempt, the server refuses a watch, then a list.
        forbidden(),
        forbidden(),
        forbidden(),
        forbidden(),
        Answer::events(&[event("ADDED", "a", 1), bookmark(2, true)], Tail::Hang),
    ]);
    let start = Clock::system().instant();
    assert!(!world.caches.has_synced());
    assert_eq!(world.caches.unsynced(), [Map::kind()]);
    world.caches.synced().await;
    let took = start.elapsed();
    // The backoffs are 800 ms and 1,600 ms, each up to doubled.
    assert!(took >= Duration::from_millis(2400) && took < Duration::from_millis(4900), "{took:?}");
    assert_eq!(cache.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_can_only_be_listed_is_listed_repeatedly() {
    let no_watch = || Answer::new(403, r#"{"kind":"Status","reason":"Forbidden","code":403}"#);
    let list = |version: u32, names: &[&str]| {
        let items: Vec<Value> = names.iter().map(|name| object(name, version)).collect();
        let metadata = json!({ "resourceVersion": version.to_string() });
        Answer::new(200, json!({ "metadata": metadata, "items": items }).to_string())
    };
    let (world, cache) = world([
        no_watch(),
        list(5, &["a"]),
        no_watch(),
        no_watch(),
        list(9, &["a", "b"]),
        no_watch(),
    ]);
    let start = Clock::system().instant();
    world.caches.synced().await;
    assert_eq!((start.elapsed(), cache.version()), (Duration::ZERO, 5));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((cache.len(), cache.version()), (2, 9));
    assert_eq!(world.notifications(), ["added b", "initial a", "updated a 5-9"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_regularly_is_reopened_at_once() {
    let ended =
        Answer::events(&[event("ADDED", "a", 1), bookmark(2, true), bookmark(4, false)], Tail::End);
    let (world, cache) = world([ended, Answer::events(&[event("ADDED", "b", 5)], Tail::Hang)]);
    cache.synced().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(world.notifications(), ["added b", "initial a"]);
    assert!(world.script.seen()[1].contains("resourceVersion=4"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_dropped_after_its_deadline() {
    let silent = Answer::events(&[bookmark(2, true)], Tail::Hang);
    let (world, cache) = world([silent, Answer::events(&[event("ADDED", "b", 5)], Tail::Hang)]);
    cache.synced().await;
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(world.script.seen().len(), 1);
    tokio::time::sleep(Duration::from_secs(360)).await;
    assert_eq!(world.notifications(), ["added b"]);
}

#[tokio::test(start_paused = true)]
async fn resync_sends_every_object_again() {
    let (world, cache) =
        world([Answer::events(&[event("ADDED", "a", 1), bookmark(2, true)], Tail::Hang)]);
    cache.synced().await;
    cache.resync_every(Duration::from_secs(60));
    cache.resync_every(Duration::from_secs(600));
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(world.notifications(), ["initial a", "updated a 1-1", "updated a 1-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_cache_is_removed_and_created_again() {
    let first = Answer::events(&[event("ADDED", "a", 1), bookmark(2, true)], Tail::Hang);
    let second = Answer::events(&[event("ADDED", "b", 3), bookmark(4, true)], Tail::Hang);
    let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let (script, tasks) = (Script::new([first, second]), Tasks::new());
    let caches = Caches::new(script.client(&clock), clock, &prometheus::Registry::new());
    caches.start(&tasks);
    let cache = caches.metadata(Map::kind());
    cache.synced().await;
    assert!(caches.stop(&Map::kind()));
    assert_eq!(caches.resource_version_of(&Map::kind()), None);
    let again = caches.metadata(Map::kind());
    again.synced().await;
    assert!(again.get("ns", "b").is_some() && again.get("ns", "a").is_none());
    assert_eq!(cache.len(), 1, "who holds the old one sees it as it was");
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_a_controller_reads_is_not_stopped_by_another() {
    let ended = Answer::events(&[event("ADDED", "a", 1), bookmark(2, true)], Tail::End);
    let gone = Answer::new(404, r#"{"kind":"Status","reason":"NotFound","code":404}"#);
    let back = Answer::events(&[event("ADDED", "b", 3)], Tail::Hang);
    let (world, cache) = world([ended, gone, back]);
    cache.synced().await;
    assert!(!world.caches.stop(&Map::kind()));
    settle().await;
    assert_eq!(world.caches.resource_version_of(&Map::kind()), Some(3));
    assert_eq!(world.notifications(), ["added b", "initial a"]);
}

#[tokio::test(start_paused = true)]
async fn late_handlers_receive_the_cached_objects() {
    let (world, cache) =
        world([Answer::events(&[event("ADDED", "a", 1), bookmark(2, true)], Tail::Hang)]);
    cache.synced().await;
    let heard = Arc::new(Mutex::new(0));
    let count = Arc::clone(&heard);
    cache.subscribe(move |event| {
        assert!(matches!(event, CacheEvent::Added { initial: true, .. }));
        *count.lock().unwrap() += 1;
    });
    assert_eq!(*heard.lock().unwrap(), 1);
    drop(world);
}

#[tokio::test(start_paused = true)]
async fn metadata_is_read_from_protobuf_frames() {
    use evenkeel_api::{
        protobuf::Transcoder,
        watch::{Event, EventType},
    };
    let frame = |type_: EventType, metadata: Value| {
        let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata });
        Event::write_protobuf(type_, &Transcoder::encode_envelope(&object).unwrap())
    };
    let end = json!({ "k8s.io/initial-events-end": "true" });
    let body = [
        frame(EventType::Added, json!({ "name": "a", "resourceVersion": "3" })),
        frame(EventType::Bookmark, json!({ "resourceVersion": "4", "annotations": end })),
        frame(EventType::Deleted, json!({ "name": "a", "resourceVersion": "5" })),
    ];
    let mut answer = Answer::new(200, "")
        .header("content-type", "application/vnd.kubernetes.protobuf;stream=watch");
    answer.chunks = body.concat().chunks(7).map(<[u8]>::to_vec).collect();
    answer.tail = Tail::Hang;

    let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let (script, tasks) = (Script::new([answer]), Tasks::new());
    let caches = Caches::new(script.client(&clock), clock, &prometheus::Registry::new());
    caches.start(&tasks);
    let cache: super::Cache<Metadata> =
        caches.metadata(Kind::new("apps", "v1", "Deployment", "deployments", true));
    let notifications = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&notifications);
    cache.subscribe(move |event| log.lock().unwrap().push(event.object().meta.version()));
    cache.synced().await;
    settle().await;
    assert_eq!(*notifications.lock().unwrap(), [3, 5]);
    assert_eq!((cache.len(), cache.version()), (0, 5));
    let accept = script.headers(0)["accept"].to_str().unwrap().to_owned();
    assert!(accept.starts_with(
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    ));
    assert!(script.seen()[0].starts_with("GET /apis/apps/v1/deployments?"));
}

#[tokio::test(start_paused = true)]
async fn a_reflector_that_panics_is_restarted_and_lists_again() {
    let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let events = |version| [event("ADDED", "a", version), bookmark(version, true)];
    let script = Script::new([
        Answer::events(&events(3), Tail::End),
        Answer::events(&events(6), Tail::Hang),
    ]);
    let (server, requests) = (script.kube(), Arc::new(AtomicUsize::new(0)));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (server, n) = (server.clone(), requests.fetch_add(1, Ordering::SeqCst));
        async move {
            assert!(n != 1, "planted at the second request");
            server.send(request).await
        }
    });
    let client = Client::new(kube::Client::new(service, "default"), clock.clone());
    let (caches, tasks) = (Caches::new(client, clock, &prometheus::Registry::new()), Tasks::new());
    let cache = caches.of::<Map>();
    caches.start(&tasks);
    cache.synced().await;
    settle().await;
    assert_eq!(cache.get("ns", "a").unwrap().meta().version(), 6);
    assert_eq!(tasks.supervisor().failures(), []);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_stopped_ends_its_tasks_without_a_failure() {
    let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let (script, tasks) = (Script::new([]), Tasks::new());
    let caches = Caches::new(script.client(&clock), clock, &prometheus::Registry::new());
    let _cache = caches.metadata(Map::kind());
    caches.start(&tasks);
    settle().await;
    assert_eq!(tasks.running().len(), 2);
    assert!(caches.stop(&Map::kind()));
    settle().await;
    assert!(tasks.running().is_empty(), "{:?}", tasks.running());
    assert_eq!(tasks.supervisor().failures(), []);
}

#[tokio::test(start_paused = true)]
async fn a_cache_will_show_what_it_selects_and_what_it_holds() {
    let meta = |name: &str, uid: &str, app: &str| Meta {
        namespace: "ns".into(),
        name: name.into(),
        uid: uid.into(),
        labels: [("app", app)].into_iter().collect(),
        ..Meta::default()
    };
    // The cached object no longer matches the selector, or it is another object of the same name.
    let (left, another) = (meta("a", "a", "db"), meta("a", "b", "db"));
    for (labels, fields, shows_new) in [("app=web", "", true), ("", "metadata.name!=x", false)] {
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let events = [event("ADDED", "a", 3), bookmark(5, true)];
        let script = Script::new([Answer::events(&events, Tail::Hang)]);
        let (tasks, registry) = (Tasks::new(), prometheus::Registry::new());
        let caches = Caches::new(script.client(&clock), clock, &registry);
        let cache = caches.selected::<Map>(labels, fields);
        caches.start(&tasks);
        cache.synced().await;
        let informer = cache.informer();
        assert!(informer.will_show(&left), "{labels} {fields}: it is removed");
        assert!(!informer.will_show(&another), "{labels} {fields}");
        assert_eq!(informer.will_show(&meta("new", "n", "web")), shows_new, "{labels} {fields}");
    }
}
