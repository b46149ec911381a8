//! Transactions as the store commits them, and what a crash leaves of one.

use std::io;
use std::sync::{Arc, Mutex};

use redb::{Builder, Database, StorageBackend};
use serde_json::{Value, json};

use super::log::Log;
use super::shared::Shared;
use super::state::State;
use super::*;
use crate::resource::ResourcePrefix;

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

/// The keys of all objects with their revisions, and the store's revision.
fn state(store: &Store) -> (Vec<(String, u64)>, u64) {
    let all =
        ["numbers", "others"].into_iter().flat_map(|resource_prefix| store.all(resource_prefix));
    (all.map(|entry| (entry.key.to_string(), entry.revision)).collect(), store.revision())
}

#[tokio::test]
async fn all_or_nothing_is_written() {
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
    for (at, (which, transaction)) in refused.into_iter().enumerate() {
        let failed = match store.commit(transaction).await {
            Err(WriteError::Mismatch { op }) => op.to_string(),
            Err(WriteError::Taken { value }) => value,
            other => panic!("{at}: {other:?}"),
        };
        assert_eq!((&*failed, state(&store)), (which, before.clone()), "{at}");
    }
    assert!(cursor.take().expect("events").is_empty());
}

#[tokio::test]
async fn a_unique_value_is_free_again_with_its_object() {
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
        .expect("there");
    assert!(store.is_taken("numbers", "7") && !store.is_taken("numbers", "8"));
}

/// A disk in memory that notes what is written to it.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<(Vec<u8>, Vec<Write>)>>);

#[derive(Debug, Clone)]
enum Write {
    Length(u64),
    Bytes(u64, Vec<u8>),
    Sync,
}

impl Disk {
    fn holding(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new((bytes, Vec::new()))))
    }

    fn with<T>(&self, change: impl FnOnce(&mut (Vec<u8>, Vec<Write>)) -> T) -> T {
        change(&mut self.0.lock().expect("no panic before"))
    }

    fn database(&self) -> Database {
        Builder::new().create_with_backend(self.clone()).expect("a database")
    }
}

fn write(disk: &mut Vec<u8>, write: &Write) {
    match write {
        Write::Length(length) => disk.resize(usize::try_from(*length).expect("small"), 0),
        Write::Bytes(at, bytes) => {
            let at = usize::try_from(*at).expect("small");
            disk.resize(disk.len().max(at + bytes.len()), 0);
            disk[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Write::Sync => {}
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.with(|(disk, _)| disk.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let at = usize::try_from(offset).expect("small");
        self.with(|(disk, _)| match disk.get(at..at + out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        })
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.note(Write::Length(len))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.note(Write::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.note(Write::Bytes(offset, data.to_vec()))
    }
}

impl Disk {
    fn note(&self, what: Write) -> Result<(), io::Error> {
        self.with(|(disk, writes)| {
            write(disk, &what);
            writes.push(what);
        });
        Ok(())
    }
}

fn on(disk: &Disk) -> Store {
    let (log, recovered) = Log::of(disk.database()).expect("readable");
    let state = State::new(recovered.revision, recovered.entries, NUMBERS);
    Store::unthreaded(Shared::new(state, Some(log), NUMBERS, false))
}

/// What may be on the disk after a crash amid `writes`: those up to the last sync, and of the rest all, all but one, or all
/// with the last one torn.
fn crashes(before: &[u8], writes: &[Write]) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    for end in 0..=writes.len() {
        let sent = &writes[..end];
        let synced = sent.iter().rposition(|w| matches!(w, Write::Sync)).unwrap_or(0);
        let mut arrived = vec![sent.to_vec()];
        if let Some((Write::Bytes(at, bytes), rest)) = sent.split_last() {
            let torn = Write::Bytes(*at, bytes[..bytes.len() / 2].to_vec());
            arrived.push(rest.iter().cloned().chain([torn]).collect());
        }
        for lost in synced..end {
            let mut rest = sent.to_vec();
            if matches!(rest.remove(lost), Write::Bytes(..)) {
                arrived.push(rest);
            }
        }
        images.extend(arrived.iter().map(|arrived| {
            let mut disk = before.to_vec();
            arrived.iter().for_each(|each| write(&mut disk, each));
            disk
        }));
    }
    images
}

#[tokio::test]
async fn a_crash_leaves_all_of_a_transaction_or_nothing() {
    let (numbers, others): (ResourcePrefix, ResourcePrefix) = ("numbers".into(), "others".into());
    let disk = Disk::default();
    let store = on(&disk);
    let first = transaction(|t| t.put(&numbers, "a", Expect::Absent, object("a", &[1])));
    store.commit(first).await.expect("written");
    let image = disk.with(|(disk, writes)| {
        writes.clear();
        disk.clone()
    });
    let before = state(&store);
    let second = transaction(|t| {
        t.put(&numbers, "b", Expect::Absent, object("b", &[2]));
        t.put(&others, "x", Expect::Absent, object("x", &[]));
        t.delete(&numbers, "a", Expect::At(1));
        t.put(&others, "y", Expect::Absent, object("y", &[]));
    });
    store.commit(second).await.expect("written");
    let (after, writes) = (state(&store), disk.with(|(_, writes)| writes.clone()));
    let found: Vec<bool> = crashes(&image, &writes)
        .into_iter()
        .map(|image| {
            let store = on(&Disk::holding(image));
            let found = state(&store);
            assert!(found == before || found == after, "{found:?}");
            let has = ["1", "2"].map(|value| store.is_taken("numbers", value));
            assert_eq!(has, [found == before, found == after]);
            found == after
        })
        .collect();
    assert!(found.contains(&true) && found.contains(&false), "{} writes", writes.len());
}
