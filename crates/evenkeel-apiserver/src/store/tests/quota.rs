//! Tests of the limit on the size of all objects.

use super::*;

/// Returns the size of all objects, by reading them.
fn counted(store: &Store) -> usize {
    let all = ["numbers", "others"].into_iter().flat_map(|prefix| store.all(prefix));
    all.map(|entry| entry.size()).sum()
}

fn sized(name: &str, bytes: usize) -> Encoded {
    let object = json!({"metadata": {"name": name}, "data": "x".repeat(bytes)});
    Encoded::new(&object, SelectionAttributes::default())
}

/// Returns whether the store refuses a write because of the quota.
fn is_refused(outcome: Result<Vec<std::sync::Arc<Entry>>, WriteError>) -> bool {
    match outcome {
        Ok(_) => false,
        Err(error) => {
            assert!(error.to_string().contains("--quota-backend-bytes"), "{error}");
            true
        }
    }
}

#[tokio::test]
async fn only_writes_that_add_to_the_size_are_refused_beyond_the_quota() {
    let store = Store::in_memory(NUMBERS);
    let others: ResourcePrefix = "others".into();
    store.set_quota(10_000);
    let put = |name: &str, expect, bytes| {
        let transaction = transaction(|t| t.put(&others, name, expect, sized(name, bytes)));
        store.commit(transaction)
    };
    assert!(!is_refused(put("a", Expect::Absent, 4_000).await));
    assert!(!is_refused(put("b", Expect::Absent, 4_000).await));
    let before = state(&store);
    assert!(is_refused(put("c", Expect::Absent, 4_000).await));
    assert!(is_refused(put("a", Expect::At(1), 8_000).await));
    assert_eq!((state(&store), store.health()), (before, Ok(())));
    // As large as before, and smaller.
    assert!(!is_refused(put("a", Expect::At(1), 4_000).await));
    assert!(!is_refused(put("a", Expect::At(3), 3_000).await));
    // A transaction that leads to a deletion is accepted, although it adds to the size.
    let mut deletion = Transaction::deletion();
    deletion.put(&others, "b", Expect::At(2), sized("b", 9_000));
    assert!(!is_refused(store.commit(deletion).await));
    assert!(is_refused(put("a", Expect::At(4), 3_100).await));
    assert!(!is_refused(
        store.commit(transaction(|t| t.delete(&others, "b", Expect::At(5)))).await
    ));
    assert!(!is_refused(put("c", Expect::Absent, 4_000).await));
    assert_eq!(store.object_bytes(), counted(&store));
    // One transaction counts as a whole.
    let swap = transaction(|t| {
        t.delete(&others, "c", Expect::At(7));
        t.put(&others, "d", Expect::Absent, sized("d", 4_000));
    });
    assert!(!is_refused(store.commit(swap).await));
}

/// The size that the store adds up is that of its objects, after deletions and a start from disk too.
#[tokio::test]
async fn the_size_is_that_of_all_objects() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = crate::Clock::system();
    let open = || {
        let transformer = std::sync::Arc::new(record::Identity);
        Store::open(folder.path(), false, NUMBERS, transformer, clock.clone()).expect("open")
    };
    let others: ResourcePrefix = "others".into();
    let store = open();
    for (index, bytes) in [300, 20, 5_000, 1].into_iter().enumerate() {
        let name = format!("o{}", index % 3);
        let expect = match store.get("others", &name) {
            Some(entry) => Expect::At(entry.revision),
            None => Expect::Absent,
        };
        store.put(&others, &name, expect, sized(&name, bytes)).await.expect("written");
        assert_eq!(store.object_bytes(), counted(&store));
    }
    store.commit(transaction(|t| t.delete(&others, "o1", Expect::At(2)))).await.expect("deleted");
    let expected = counted(&store);
    assert_eq!((store.object_bytes(), expected > 5_000), (expected, true));
    drop(store);
    let store = open();
    assert_eq!((store.object_bytes(), counted(&store)), (expected, expected));
    // What is staged after the start counts from there.
    store.set_quota(expected + 1);
    let made = transaction(|t| t.put(&others, "y", Expect::Absent, sized("y", 1)));
    assert!(is_refused(store.commit(made).await));
}
