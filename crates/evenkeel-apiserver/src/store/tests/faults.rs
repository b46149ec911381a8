//! Disks that fail and recover.

use std::time::Duration;

use super::super::open::DATABASE;
use super::crash::on;
use super::disk::FaultyFolder;
use super::*;

async fn put(store: &Store, key: &str, size: usize) -> Result<(), WriteError> {
    let object = json!({"metadata": {"name": key}, "data": "x".repeat(size)});
    let encoded = Encoded::new(&object, SelectionAttributes::default());
    let expect =
        store.get("others", key).map_or(Expect::Absent, |entry| Expect::At(entry.revision));
    store.put(&"others".into(), key, expect, encoded).await.map(|_| ())
}

async fn delete(store: &Store, key: &str) -> Result<(), WriteError> {
    let revision = store.get("others", key).expect("a stored object").revision;
    let deletion = transaction(|t| t.delete(&"others".into(), key, Expect::At(revision)));
    store.commit(deletion).await.map(|_| ())
}

/// Returns the reason of a refused write.
fn refused(result: &Result<(), WriteError>) -> &str {
    match result {
        Err(WriteError::Storage(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_accepts_only_deletions_until_space_is_free() {
    let folder = FaultyFolder::new(1);
    let store = on(&folder).expect("a new folder");
    put(&store, "first", 100).await.expect("written");
    tokio::time::advance(Duration::from_secs(2)).await;
    put(&store, "first", 200).await.expect("written, and space is set aside");
    folder.set(|faults| faults.capacity = Some(9 << 20));
    let mut n = 0;
    let full = loop {
        let result = put(&store, &format!("k{n}"), 20_000).await;
        if result.is_err() {
            break result;
        }
        n += 1;
    };
    assert!(n > 50, "{n}");
    assert!(refused(&full).contains("/data is full"), "{full:?}");
    assert!(refused(&full).contains("make room"), "{full:?}");
    assert_eq!((store.count("others"), store.health().is_err()), (n + 1, true));
    assert!(refused(&put(&store, "more", 1).await).contains("objects can be read and deleted"));
    for at in 0..20 {
        delete(&store, &format!("k{at}")).await.expect("space was set aside");
    }
    assert_eq!(state(&on(&folder.crash()).expect("whole")), state(&store));
    // Another file frees its space.
    folder.set(|faults| faults.capacity = Some(64 << 20));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(store.health().is_ok());
    put(&store, "more", 20_000).await.expect("written");
    assert_eq!(state(&on(&folder.crash()).expect("whole")), state(&store));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_accepts_only_deletions_after_a_restart() {
    let folder = FaultyFolder::new(1);
    let store = on(&folder).expect("a new folder");
    put(&store, "first", 100).await.expect("written");
    tokio::time::advance(Duration::from_secs(2)).await;
    put(&store, "first", 200).await.expect("written, and space is set aside");
    folder.set(|faults| faults.capacity = Some(9 << 20));
    let mut n = 0;
    while put(&store, &format!("k{n}"), 20_000).await.is_ok() {
        n += 1;
    }
    // Another file takes half of the space that the reserve gave back, so that the reserve cannot be restored.
    let capacity = folder.used() + (2 << 20);
    folder.set(|faults| faults.capacity = Some(capacity));
    delete(&store, "k0").await.expect("space was set aside");
    let folder = folder.copy();
    folder.set(|faults| faults.capacity = Some(capacity));
    let store = on(&folder).expect("whole");
    for at in 0..3 {
        let result = put(&store, &format!("more{at}"), 1).await;
        assert!(refused(&result).contains("objects can be read and deleted"), "{result:?}");
    }
    for at in 1..n.min(20) {
        delete(&store, &format!("k{at}")).await.expect("no other write took the space");
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_alone_free_enough_space_for_writes() {
    let folder = FaultyFolder::new(1);
    let store = on(&folder).expect("a new folder");
    put(&store, "first", 100).await.expect("written");
    tokio::time::advance(Duration::from_secs(2)).await;
    put(&store, "first", 200).await.expect("written, and space is set aside");
    folder.set(|faults| faults.capacity = Some(12 << 20));
    let mut n = 0;
    while put(&store, &format!("k{n}"), 20_000).await.is_ok() {
        n += 1;
    }
    for at in 0..n {
        delete(&store, &format!("k{at}")).await.expect("space was set aside");
    }
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(2)).await;
        if store.health().is_ok() {
            break;
        }
    }
    assert_eq!(store.health(), Ok(()), "{} of {}", folder.used(), 12 << 20);
    put(&store, "more", 20_000).await.expect("written");
    assert_eq!(state(&on(&folder.crash()).expect("whole")), state(&store));
}

#[tokio::test(start_paused = true)]
async fn writes_succeed_after_the_disk_is_writable_again() {
    let folder = FaultyFolder::new(1);
    let store = on(&folder).expect("a new folder");
    put(&store, "a", 10).await.expect("written");
    folder.set(|faults| faults.read_only = true);
    let result = put(&store, "b", 10).await;
    assert!(refused(&result).contains("/data cannot be written to"), "{result:?}");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(store.health().is_err());
    assert_eq!((store.count("others"), store.revision()), (1, 1));
    folder.set(|faults| faults.read_only = false);
    assert!(put(&store, "b", 10).await.is_err(), "the next retry is not due");
    tokio::time::advance(Duration::from_secs(60)).await;
    put(&store, "b", 10).await.expect("written");
    assert_eq!(state(&on(&folder.crash()).expect("whole")), state(&store));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_disk_refused_does_not_count_towards_the_quota() {
    let folder = FaultyFolder::new(1);
    let store = on(&folder).expect("a new folder");
    put(&store, "a", 10).await.expect("written");
    // Room for one object of this size, not for two.
    store.set_quota(store.object_bytes() + 3_000);
    folder.set(|faults| faults.read_only = true);
    assert!(put(&store, "b", 2_000).await.is_err());
    folder.set(|faults| faults.read_only = false);
    tokio::time::advance(Duration::from_secs(60)).await;
    put(&store, "b", 2_000).await.expect("written");
    assert!(refused(&put(&store, "c", 2_000).await).contains("--quota-backend-bytes"));
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_sync_all_records_are_rewritten_to_a_new_file() {
    for seed in 0..30 {
        let folder = FaultyFolder::new(seed);
        let store = on(&folder).expect("a new folder");
        for at in 0..5 {
            put(&store, &format!("k{at}"), 3_000).await.expect("written");
        }
        delete(&store, "k1").await.expect("written");
        folder.set(|faults| faults.fail_sync = Some(0));
        assert!(put(&store, "k0", 10).await.is_err());
        let before = state(&store);
        assert_eq!(before.1, 6);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(store.health(), Ok(()));
        assert!(!folder.copy().flip("evenkeel.redb.new"), "the new file took the old one's place");
        assert_eq!((state(&store), folder.bytes(DATABASE).is_some()), (before, true));
        put(&store, "k0", 10).await.expect("written");
        let after = on(&folder.crash()).expect("whole");
        assert_eq!(state(&after), state(&store));
        let events = |store: &Store| {
            let events =
                store.follow(&"others".into(), &Scope::All, 0).expect("kept").take().expect("kept");
            events.iter().map(|event| event.entry.revision).collect::<Vec<_>>()
        };
        assert_eq!(events(&after), events(&store), "the new file has the history, too");
    }
}
