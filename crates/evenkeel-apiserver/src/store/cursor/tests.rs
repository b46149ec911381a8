use serde_json::json;

use super::*;
use crate::store::state::Staged;
use crate::store::{Change, Encoded, Expect, Range, SelectionAttributes, Transaction};

fn prefix() -> ResourcePrefix {
    "/pods".into()
}

/// Returns a pod on a node with `size` bytes of data.
fn pod(node: &str, size: usize) -> Encoded {
    let object = json!({"metadata": {"name": "p"}, "data": "x".repeat(size)});
    let selection = SelectionAttributes::new(&object, |put| put(node));
    Encoded::new(&object, selection)
}

async fn put(store: &Store, key: &str, node: &str) -> u64 {
    let expect = store.get("/pods", key).map_or(Expect::Absent, |e| Expect::At(e.revision));
    store.put(&prefix(), key, expect, pod(node, 0)).await.expect("written").revision
}

async fn delete(store: &Store, key: &str) {
    let revision = store.get("/pods", key).expect("a stored pod").revision;
    let mut transaction = Transaction::default();
    transaction.delete(&prefix(), key, Expect::At(revision));
    store.commit(transaction).await.expect("deleted");
}

fn node(name: &str) -> Scope {
    Scope::Field(0, name.into())
}

/// Returns the events that a cursor takes.
fn taken(cursor: &mut Cursor) -> Vec<(String, Change)> {
    let events = cursor.take().expect("not expired");
    events.iter().map(|event| (event.entry.key.to_string(), event.entry.change)).collect()
}

fn is_woken(cursor: &Cursor) -> bool {
    *cursor.signal.borrow() > cursor.at
}

#[tokio::test]
async fn an_event_wakes_the_cursors_whose_scope_includes_it() {
    let store = Store::in_memory(&[]);
    let scopes = [
        Scope::All,
        Scope::Namespace("a".into()),
        Scope::Namespace("b".into()),
        Scope::Object("a/p".into()),
        Scope::Object("a/q".into()),
        node("n1"),
        node("n2"),
        node(""),
    ];
    let mut cursors =
        scopes.map(|scope| store.follow(&prefix(), &scope, 0).expect("the beginning"));
    let mut woken = || {
        let woken: String = cursors.iter().map(|c| if is_woken(c) { 'x' } else { '.' }).collect();
        for cursor in &mut cursors {
            let events = if is_woken(cursor) { 1 } else { 0 };
            assert_eq!(taken(cursor).len(), events);
        }
        woken
    };
    put(&store, "a/p", "").await;
    assert_eq!(woken(), "xx.x...x");
    // Binding the pod moves it from one scope to another.
    put(&store, "a/p", "n1").await;
    assert_eq!(woken(), "xx.x.x.x");
    put(&store, "a/p", "n1").await;
    assert_eq!(woken(), "xx.x.x..");
    put(&store, "b/q", "n2").await;
    assert_eq!(woken(), "x.x...x.");
    delete(&store, "a/p").await;
    assert_eq!(woken(), "xx.x.x..");
}

#[tokio::test]
async fn a_cursor_that_begins_in_the_past_returns_earlier_events() {
    let store = Store::in_memory(&[]);
    put(&store, "a/p", "n1").await;
    put(&store, "a/q", "n2").await;
    let mut cursor = store.follow(&prefix(), &node("n1"), 0).expect("the beginning");
    let events = taken(&mut cursor);
    assert!(events.contains(&("a/p".to_owned(), Change::Added)), "{events:?}");
    put(&store, "a/q", "n2").await;
    put(&store, "a/r", "n1").await;
    assert_eq!(taken(&mut cursor), [("a/r".to_owned(), Change::Added)]);
    assert_eq!(cursor.at(), store.revision());
}

#[tokio::test]
async fn events_outside_its_scope_do_not_expire_a_cursor() {
    let store = Store::in_memory(&[]);
    let mut other_node = store.follow(&prefix(), &node("n1"), 0).expect("the beginning");
    let mut all = store.follow(&prefix(), &Scope::All, 0).expect("the beginning");
    for _ in 0..17_000 {
        put(&store, "a/q", "n2").await;
    }
    assert_eq!(all.take().err(), Some(Expired));
    assert!(!is_woken(&other_node));
    put(&store, "a/p", "n1").await;
    assert_eq!(taken(&mut other_node), [("a/p".to_owned(), Change::Added)]);
    // A cursor expires when the ring drops an event of its own scope that it has not read.
    let mut slow = store.follow(&prefix(), &node("n2"), store.revision()).expect("now");
    for _ in 0..17_000 {
        put(&store, "a/q", "n2").await;
    }
    assert_eq!(slow.take().err(), Some(Expired));
}

#[tokio::test]
async fn a_call_returns_a_limited_number_of_bytes() {
    let store = Store::in_memory(&[]);
    for scope in [Scope::All, Scope::Namespace("a".into())] {
        let mut cursor = store.follow(&prefix(), &scope, store.revision()).expect("now");
        for n in 0..50 {
            let key = format!("a/p{n}");
            let expect =
                store.get("/pods", &key).map_or(Expect::Absent, |e| Expect::At(e.revision));
            store.put(&prefix(), &key, expect, pod("", 10_000)).await.expect("written");
        }
        let mut sizes = Vec::new();
        loop {
            let events = cursor.take().expect("not expired");
            if events.is_empty() {
                break;
            }
            let bytes: usize = events.iter().map(|event| event.entry.size()).sum();
            assert!(bytes <= MAX_BYTES, "{bytes}");
            sizes.push(events.len());
        }
        assert_eq!(sizes.iter().sum::<usize>(), 50, "{scope:?}: {sizes:?}");
        assert_eq!(cursor.at(), store.revision());
        // A larger event is returned alone.
        let expect = store.get("/pods", "a/p0").map_or(Expect::Absent, |e| Expect::At(e.revision));
        store.put(&prefix(), "a/p0", expect, pod("", 200_000)).await.expect("written");
        assert_eq!(taken(&mut cursor).len(), 1);
    }
}

/// Cursors that read during commits return each event once and in order, wherever a commit is interrupted.
#[test]
fn a_cursor_misses_no_event_of_a_concurrent_commit() {
    const WRITERS: u64 = 4;
    const WRITES: u64 = 1_000;
    let (store, last) = (Store::in_memory(&[]), WRITERS * WRITES);
    let revisions = |mut cursor: Cursor| {
        let mut seen = Vec::new();
        while cursor.at() < last {
            let events = cursor.take().expect("not expired");
            seen.extend(events.iter().map(|event| event.entry.revision));
        }
        seen
    };
    std::thread::scope(|threads| {
        let scopes = [Scope::All, Scope::Namespace("a".into()), node("n1")];
        let followers = scopes.map(|scope| {
            let cursor = store.follow(&prefix(), &scope, 0).expect("the beginning");
            (scope, threads.spawn(move || revisions(cursor)))
        });
        for writer in 0..WRITERS {
            let store = &store;
            threads.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.expect("a runtime").block_on(async {
                    for _ in 0..WRITES {
                        put(store, &format!("a/p{writer}"), "n1").await;
                    }
                });
            });
        }
        for (scope, follower) in followers {
            let seen = follower.join().expect("a follower");
            let missed: Vec<u64> = (1..=last).filter(|revision| !seen.contains(revision)).collect();
            assert!(missed.is_empty(), "{scope:?} misses {missed:?}");
            assert!(seen.into_iter().eq(1..=last), "{scope:?}");
        }
    });
}

#[tokio::test]
async fn a_scope_without_cursors_records_no_events() {
    let store = Store::in_memory(&[]);
    let first = store.follow(&prefix(), &node("n1"), 0).expect("the beginning");
    let second = store.follow(&prefix(), &node("n1"), 0).expect("the beginning");
    drop(first);
    put(&store, "a/p", "n1").await;
    assert!(is_woken(&second));
    drop(second);
    assert!(store.shared.watchers.is_empty());
}

/// Returns the creation of an object at a revision.
fn added(key: &str, revision: u64) -> Staged {
    let entry = Arc::new(pod("n", 0).into_entry(key.into(), revision, Change::Added));
    let event = Arc::new(Event::new(entry, None));
    Staged { resource_prefix: prefix(), event, values: Vec::new() }
}

#[tokio::test]
async fn a_cursor_returns_all_events_of_a_revision() {
    let store = Store::in_memory(&[]);
    let scopes =
        [Scope::All, Scope::Namespace("a".into()), node("n"), Scope::Object("a/299".into())];
    let mut cursors =
        scopes.map(|scope| store.follow(&prefix(), &scope, 0).expect("the beginning"));
    // More than one call returns, in one transaction after another one.
    let large = (0..MAX_EVENTS + 44).map(|n| added(&format!("a/{n}"), 8));
    store.shared.publish_up_to(8, [added("a/x", 7)].into_iter().chain(large).collect());
    store.shared.publish_up_to(9, vec![added("b/x", 9), added("a/y", 9)]);
    // Writes of resources that this server does not know.
    store.shared.publish_up_to(12, Vec::new());
    assert_eq!(store.revision(), 12);
    for (cursor, expected) in cursors.iter_mut().zip([304, 304, 304, 300]) {
        let mut keys = std::collections::BTreeSet::new();
        loop {
            let events = taken(cursor);
            if events.is_empty() {
                break;
            }
            keys.extend(events.into_iter().map(|(key, _)| key));
        }
        assert!(keys.contains("a/299"));
        assert!(keys.len() >= expected - 1, "{}", keys.len());
        assert_eq!(cursor.at(), 12);
    }
    let snapshot = |revision| {
        let snapshot = store.list_at("/pods", Range::default(), revision).expect("not expired");
        snapshot.entries.len()
    };
    assert_eq!([6, 7, 8, 9].map(snapshot), [0, 1, 301, 303]);
}

#[tokio::test]
async fn cursors_expire_when_all_objects_are_replaced() {
    let store = Store::in_memory(&[]);
    store.shared.publish_up_to(7, vec![added("a/x", 7)]);
    let scopes = [Scope::All, Scope::Namespace("a".into()), node("n"), Scope::Object("a/x".into())];
    let mut cursors = scopes.map(|scope| store.follow(&prefix(), &scope, 7).expect("the present"));
    store.shared.replace(20, vec![added("a/y", 12)]);
    for cursor in &mut cursors {
        assert!(is_woken(cursor));
        assert!(cursor.take().is_err());
    }
    assert!(store.get("/pods", "a/x").is_none() && store.get("/pods", "a/y").is_some());
    assert_eq!(store.revision(), 20);
}
