//! The store: every object as encoded bytes in memory, one revision counter, transactions with preconditions, a ring of
//! recent events for each collection, and, where a data folder is given, a durable engine.
//!
//! A transaction is checked against the committed objects and what is pending over them, gets its revisions, and is queued
//! (`pending`). The store's thread commits the queue as one batch (`durable`), of one record a revision (`record`). Then
//! it is applied to memory (`state`), shown to watches, and acknowledged. What is not on disk nobody sees. The records are the
//! change history, too: a restart reads events out of them (`load`), so that watches resume. Compaction removes what no
//! revision of the kept history needs (`history`).

mod backend;
mod cursor;
mod durable;
mod engine;
mod entry;
mod error;
mod event;
mod event_bytes;
mod folder;
pub(crate) mod fuzz;
mod handle;
mod history;
mod index;
mod layout;
mod list;
mod load;
mod migration;
mod open;
mod pending;
mod record;
mod ring;
mod shared;
mod size;
mod snapshot;
mod state;
mod transaction;
mod unchanged;
mod watchers;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use cursor::Cursor;
pub(crate) use entry::{Change, Encoded, Entry, SelectionAttributes};
pub use error::OpenError;
pub(crate) use event::Event;
#[cfg(test)]
pub(crate) use event_bytes::MAX_BYTES;
pub(crate) use handle::{Store, changed, storable};
pub(crate) use index::IndexedResources;
pub(crate) use list::{Range, Snapshot};
pub(crate) use open::is_its_file;
pub(crate) use record::{DataContext, Transformer, Untransformable};
pub use snapshot::{SnapshotError, Summary, restore, save, verify};
pub(crate) use transaction::{Expect, Transaction, WriteError};
pub(crate) use watchers::Scope;
