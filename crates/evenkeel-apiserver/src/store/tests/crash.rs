//! State of the store after a crash during a commit.

use std::sync::Arc;

use super::super::open::DATABASE;
use super::super::record::Identity;
use super::disk::FaultyFolder;
use super::*;
use crate::clock::Clock;

pub(super) fn clock() -> Clock {
    Clock::new(|| jiff::Timestamp::UNIX_EPOCH)
}

/// Opens the store in a folder.
pub(super) fn on(folder: &FaultyFolder) -> Result<Store, OpenError> {
    Store::open_in(Arc::new(folder.clone()), Arc::new(Identity), NUMBERS, clock(), false)
}

/// The second of two transactions fails at each of its writes in turn, and then the disk crashes.
#[tokio::test(start_paused = true)]
async fn a_crash_leaves_a_whole_transaction_or_nothing_of_it() {
    let (numbers, others): (ResourcePrefix, ResourcePrefix) = ("numbers".into(), "others".into());
    let mut found = Vec::new();
    for fail_write in 0.. {
        let folder = FaultyFolder::new(fail_write as u64);
        let store = on(&folder).expect("a new folder");
        let first = transaction(|t| t.put(&numbers, "a", Expect::Absent, object("a", &[1])));
        store.commit(first).await.expect("written");
        let before = state(&store);
        let second = transaction(|t| {
            t.put(&numbers, "b", Expect::Absent, object("b", &[2]));
            t.put(&others, "x", Expect::Absent, object("x", &[]));
            t.delete(&numbers, "a", Expect::At(1));
            t.put(&others, "y", Expect::Absent, object("y", &[]));
        });
        folder.set(|faults| faults.fail_write = Some(fail_write));
        let written = store.commit(second).await.is_ok();
        let image = folder.crash();
        let after = on(&image).expect("whole");
        let (in_memory, on_disk) = (state(&store), state(&after));
        if written {
            assert_eq!((in_memory.1, &in_memory), (5, &on_disk));
        } else {
            assert_eq!(in_memory, before, "memory has only committed writes");
            assert!(on_disk == before || on_disk.1 == 5, "{on_disk:?}");
        }
        let taken = ["1", "2"].map(|value| after.is_taken("numbers", value));
        assert_eq!(taken, [on_disk == before, on_disk != before]);
        found.push(written);
        if written {
            break;
        }
    }
    assert!(found.len() > 3, "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn watches_resume_after_a_restart() {
    let numbers: ResourcePrefix = "numbers".into();
    let folder = FaultyFolder::new(1);
    let store = on(&folder).expect("a new folder");
    for name in ["a", "b", "c"] {
        let make = transaction(|t| t.put(&numbers, name, Expect::Absent, object(name, &[])));
        store.commit(make).await.expect("written");
    }
    store.commit(transaction(|t| t.delete(&numbers, "b", Expect::At(2)))).await.expect("deleted");
    store
        .commit(transaction(|t| t.put(&numbers, "a", Expect::At(1), object("a", &[7]))))
        .await
        .expect("updated");
    drop(store);
    let store = on(&folder.crash()).expect("whole");
    assert_eq!(store.revision(), 5);
    for since in 0..=5 {
        let events =
            store.follow(&numbers, &Scope::All, since).expect("kept").take().expect("kept");
        let seen: Vec<_> = events
            .iter()
            .map(|event| {
                let before = event.previous.as_ref().map(|previous| previous.revision);
                (&*event.entry.key, event.entry.revision, event.entry.change, before)
            })
            .collect();
        let all = [
            ("a", 1, Change::Added, None),
            ("b", 2, Change::Added, None),
            ("c", 3, Change::Added, None),
            ("b", 4, Change::Deleted, Some(2)),
            ("a", 5, Change::Modified, Some(1)),
        ];
        assert_eq!(seen, all[usize::try_from(since).expect("small")..]);
    }
    let listed = store.list_at("numbers", Range::default(), 3).expect("kept").entries;
    assert_eq!(listed.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_file_is_refused_and_not_changed() {
    let numbers: ResourcePrefix = "numbers".into();
    let folder = FaultyFolder::new(1);
    let store = on(&folder).expect("a new folder");
    for name in ["first", "second"] {
        let make = transaction(|t| t.put(&numbers, name, Expect::Absent, object(name, &[])));
        store.commit(make).await.expect("written");
    }
    drop(store);
    let whole = folder.bytes(DATABASE).expect("a file");
    let mut opened = 0;
    for seed in 0..200 {
        let damaged = folder.copy();
        for _ in 0..=seed {
            damaged.flip(DATABASE);
        }
        let before = damaged.bytes(DATABASE).expect("a file");
        match on(&damaged) {
            // The flipped bits were in unused pages.
            Ok(store) => {
                opened += 1;
                assert_eq!(state(&store).0.len(), 2);
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("/data/evenkeel.redb is damaged"), "{text}");
                assert!(text.contains("restore a snapshot"), "{text}");
                assert!(before == damaged.bytes(DATABASE).expect("a file"), "{text}");
            }
        }
    }
    for length in [100, 4096, whole.len() / 2, whole.len() - 4096] {
        let cut = folder.copy();
        cut.cut(DATABASE, length);
        let text = on(&cut).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("/data/evenkeel.redb is damaged"), "{length}: {text}");
    }
    assert!(opened < 190 && whole.len() > 4096, "{opened}");
}
