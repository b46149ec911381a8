//! Tests of transactions, and of the store after disk faults.

mod crash;
mod disk;
mod explore;
mod faults;
mod quota;
mod refused;
mod upgrade;

use serde_json::{Value, json};

use super::*;
use crate::resource::ResourcePrefix;

/// Index of the values in an object's field `numbers`, for the collection `numbers`.
const NUMBERS: IndexedResources = &[("numbers", numbers)];

fn numbers(object: &Value) -> Vec<String> {
    object["numbers"].as_array().into_iter().flatten().map(Value::to_string).collect()
}

fn object(name: &str, numbers: &[u64]) -> Encoded {
    let object = json!({"metadata": {"name": name}, "numbers": numbers});
    Encoded::new(&object, SelectionAttributes::default())
}

fn transaction(ops: impl FnOnce(&mut Transaction)) -> Transaction {
    let mut transaction = Transaction::default();
    ops(&mut transaction);
    transaction
}

/// Returns the keys and revisions of all objects, and the store's revision.
fn state(store: &Store) -> (Vec<(String, u64)>, u64) {
    let all =
        ["numbers", "others"].into_iter().flat_map(|resource_prefix| store.all(resource_prefix));
    (all.map(|entry| (entry.key.to_string(), entry.revision)).collect(), store.revision())
}

#[tokio::test]
async fn a_transaction_is_written_whole_or_not_at_all() {
    let store = Store::in_memory(NUMBERS);
    let (numbers, others): (ResourcePrefix, ResourcePrefix) = ("numbers".into(), "others".into());
    let mut cursor = store.follow(&numbers, &Scope::All, 0).expect("the beginning");
    let written = store
        .commit(transaction(|t| {
            t.put(&others, "x", Expect::Absent, object("x", &[]));
            t.put(&numbers, "a", Expect::Absent, object("a", &[1, 2]));
            t.put(&numbers, "b", Expect::Absent, object("b", &[2]));
            t.delete(&numbers, "b", Expect::Written);
        }))
        .await
        .expect("written");
    assert_eq!(written.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let events = cursor.take().expect("events");
    let seen: Vec<_> =
        events.iter().map(|e| (&*e.entry.key, e.entry.revision, e.entry.change)).collect();
    assert_eq!(seen, [("a", 2, Change::Added), ("b", 3, Change::Added), ("b", 4, Change::Deleted)]);
    let before = state(&store);
    // The index of the operation that fails, or the value that is taken.
    let refused: [(&str, Transaction); 6] = [
        (
            "1",
            transaction(|t| {
                t.put(&others, "y", Expect::Absent, object("y", &[]));
                t.put(&numbers, "a", Expect::Absent, object("a", &[]));
            }),
        ),
        (
            "1",
            transaction(|t| {
                t.delete(&others, "x", Expect::At(1));
                t.delete(&numbers, "a", Expect::At(1));
            }),
        ),
        ("0", transaction(|t| t.put(&numbers, "c", Expect::At(2), object("c", &[])))),
        ("0", transaction(|t| t.delete(&numbers, "a", Expect::Written))),
        (
            "2",
            transaction(|t| {
                t.unique(&numbers, "2".to_owned());
                t.put(&numbers, "c", Expect::Absent, object("c", &[2]));
            }),
        ),
        (
            "1",
            transaction(|t| {
                t.delete(&numbers, "a", Expect::At(2));
                t.put(&numbers, "a", Expect::At(2), object("a", &[]));
            }),
        ),
    ];
    for (index, (expected, transaction)) in refused.into_iter().enumerate() {
        let failed = match store.commit(transaction).await {
            Err(WriteError::Mismatch { op }) => op.to_string(),
            Err(WriteError::Taken { value }) => value,
            other => panic!("{index}: {other:?}"),
        };
        assert_eq!((&*failed, state(&store)), (expected, before.clone()), "{index}");
    }
    assert!(cursor.take().expect("events").is_empty());
}

#[tokio::test]
async fn a_unique_value_is_free_after_its_object_drops_it() {
    let store = Store::in_memory(NUMBERS);
    let resource_prefix: ResourcePrefix = "numbers".into();
    let claim = |key: &str, number: u64, expect| {
        transaction(|t| {
            t.unique(&resource_prefix, number.to_string());
            t.put(&resource_prefix, key, expect, object(key, &[number]));
        })
    };
    store.commit(claim("a", 7, Expect::Absent)).await.expect("free");
    assert!(store.commit(claim("b", 7, Expect::Absent)).await.is_err());
    store.commit(claim("a", 8, Expect::At(1))).await.expect("free");
    store.commit(claim("b", 7, Expect::Absent)).await.expect("free again");
    store
        .commit(transaction(|t| t.delete(&resource_prefix, "a", Expect::At(2))))
        .await
        .expect("deleted");
    assert!(store.is_taken("numbers", "7") && !store.is_taken("numbers", "8"));
}
