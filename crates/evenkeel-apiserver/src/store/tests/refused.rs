//! Writes that cannot be encoded, among others of the same commit.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::record::{DataContext, Transformer, Untransformable};
use super::crash::{clock, on};
use super::disk::FaultyFolder;
use super::*;

/// Transformer that refuses the objects whose key begins with `bad`.
struct Picky;

impl Transformer for Picky {
    fn transform_to_storage<'a>(
        &self,
        context: DataContext<'_>,
        value: Cow<'a, [u8]>,
    ) -> Result<Cow<'a, [u8]>, String> {
        if context.key.starts_with("bad") { Err("it is bad".to_owned()) } else { Ok(value) }
    }

    fn transform_from_storage<'a>(
        &self,
        _: DataContext<'_>,
        stored: &'a [u8],
    ) -> Result<(Cow<'a, [u8]>, bool), Untransformable> {
        Ok((stored.into(), false))
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_cannot_be_encoded_costs_only_itself_and_what_depends_on_it() {
    let folder = FaultyFolder::new(1);
    let store = Store::open_in(Arc::new(folder.clone()), Arc::new(Picky), NUMBERS, clock(), false)
        .expect("a new folder");
    let (numbers, others): (ResourcePrefix, ResourcePrefix) = ("numbers".into(), "others".into());
    store.put(&others, "a", Expect::Absent, object("a", &[])).await.expect("written");
    let put = |resource: &ResourcePrefix, key: &str, expect| {
        transaction(|t| t.put(resource, key, expect, object(key, &[7])))
    };
    let unique = |resource: &ResourcePrefix, key: &str| {
        transaction(|t| {
            t.unique(resource, "9".to_owned());
            t.put(resource, key, Expect::Absent, object(key, &[9]));
        })
    };
    // The revisions of these transactions are 2 to 9.
    let staged = [
        (put(&others, "b", Expect::Absent), true),
        (put(&others, "bad", Expect::Absent), false),
        // It depends on the refused object.
        (
            transaction(|t| {
                t.put(&others, "c", Expect::Absent, object("c", &[]));
                t.delete(&others, "bad", Expect::At(3));
            }),
            false,
        ),
        // It depends on that one.
        (put(&others, "c", Expect::At(4)), false),
        (put(&others, "a", Expect::At(1)), true),
        (put(&numbers, "n", Expect::Absent), true),
        (unique(&numbers, "m"), true),
    ];
    let (staged, accepted): (Vec<_>, Vec<_>) = staged.into_iter().unzip();
    let outcomes: Vec<_> = staged
        .into_iter()
        .map(|transaction| {
            let values = transaction.index_values(NUMBERS);
            let staged = store.shared.stage(transaction, values);
            staged.unwrap_or_else(|error| panic!("{}", error.error)).outcome
        })
        .collect();
    let mut settled = Box::pin(store.settle());
    assert!(futures::poll!(settled.as_mut()).is_pending());
    store.shared.commit_on_this_thread();
    let why = settled.await.expect_err("some were refused").to_string();
    assert!(why.contains("it is bad"), "{why}");
    for ((index, outcome), accepted) in outcomes.into_iter().enumerate().zip(accepted) {
        let outcome = outcome.await.expect("an outcome");
        assert_eq!(outcome.is_ok(), accepted, "{index}: {outcome:?}");
        if let Err(why) = outcome {
            assert_eq!(&*why, "it is bad", "{index}");
        }
    }
    let keys = |store: &Store| state(store).0.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(&store), ["m", "n", "a", "b"]);
    assert_eq!(state(&on(&folder.crash()).expect("whole")), state(&store));
    assert!(store.health().is_ok());
    // Nothing of a refused write is pending: its object can be created, and a write alone is refused as well.
    store.put(&others, "c", Expect::Absent, object("c", &[])).await.expect("written");
    let bad = store.put(&others, "bad", Expect::Absent, object("bad", &[])).await;
    assert!(bad.expect_err("refused").to_string().contains("it is bad"));
    store.settle().await.expect("nothing is pending");
    assert_eq!(state(&on(&folder.crash()).expect("whole")), state(&store));
}

#[tokio::test(start_paused = true)]
async fn a_unique_value_is_not_taken_from_a_refused_write() {
    let folder = FaultyFolder::new(1);
    let transformer = Arc::new(Switched::default());
    let store =
        Store::open_in(Arc::new(folder.clone()), transformer.clone(), NUMBERS, clock(), false)
            .expect("a new folder");
    let numbers: ResourcePrefix = "numbers".into();
    store.put(&numbers, "bad", Expect::Absent, object("bad", &[5])).await.expect("written");
    transformer.refuses.store(true, std::sync::atomic::Ordering::Relaxed);
    // The first one would free the value that the second one takes.
    let frees = transaction(|t| t.put(&numbers, "bad", Expect::At(1), object("bad", &[])));
    let takes = transaction(|t| {
        t.unique(&numbers, "5".to_owned());
        t.put(&numbers, "a", Expect::Absent, object("a", &[5]));
    });
    let outcomes = [frees, takes].map(|transaction| {
        let values = transaction.index_values(NUMBERS);
        let staged = store.shared.stage(transaction, values);
        staged.unwrap_or_else(|error| panic!("{}", error.error)).outcome
    });
    store.shared.commit_on_this_thread();
    for outcome in outcomes {
        assert!(outcome.await.expect("an outcome").is_err());
    }
    assert!(store.is_taken("numbers", "5"));
    assert_eq!(state(&store).0.len(), 1);
}

/// Transformer that refuses the objects whose key begins with `bad`, once a test sets so.
#[derive(Default)]
struct Switched {
    refuses: std::sync::atomic::AtomicBool,
}

impl Transformer for Switched {
    fn transform_to_storage<'a>(
        &self,
        context: DataContext<'_>,
        value: Cow<'a, [u8]>,
    ) -> Result<Cow<'a, [u8]>, String> {
        if self.refuses.load(std::sync::atomic::Ordering::Relaxed) {
            return Picky.transform_to_storage(context, value);
        }
        Ok(value)
    }

    fn transform_from_storage<'a>(
        &self,
        context: DataContext<'_>,
        stored: &'a [u8],
    ) -> Result<(Cow<'a, [u8]>, bool), Untransformable> {
        Picky.transform_from_storage(context, stored)
    }
}
