//! Store of objects. It holds encoded objects in memory, and has one revision counter, transactions with preconditions,
//! and a ring of recent events for each collection. With a data folder, it has a durable engine.
//!
//! The store checks a transaction against the committed objects and the pending writes, assigns its revisions and
//! queues it (`pending`). The store's thread commits the queue as one batch (`durable`), with one record per revision
//! (`record`). Then it applies the batch to memory (`state`), signals watches and acknowledges the writes. Readers thus
//! never observe writes that are not on disk. The records are also the change history: a restart loads events from them
//! (`load`), so that watches resume. Compaction removes records that no revision of the kept history needs (`history`).

mod backend;
mod cursor;
mod durable;
mod engine;
mod entry;
mod error;
mod etcd;
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
mod overlay;
mod pending;
mod queued;
mod record;
mod refused;
mod ring;
mod shared;
mod size;
mod snapshot;
mod state;
mod template;
mod transaction;
mod watchers;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use cursor::Cursor;
pub(crate) use entry::{Change, Encoded, Entry, SelectionAttributes};
pub use error::OpenError;
pub(crate) use etcd::{ConnectError, Layout};
pub use etcd::{EtcdOptions, STAND_IN_MESSAGE};
pub(crate) use event::Event;
#[cfg(test)]
pub(crate) use event_bytes::MAX_BYTES;
pub(crate) use handle::{Store, check_storable, wait_for_any_change, wait_for_change};
pub(crate) use index::IndexedResources;
pub(crate) use list::{Range, Snapshot};
pub(crate) use open::{has_file, is_its_file};
pub(crate) use record::{DataContext, Transformer, Untransformable};
pub use snapshot::{SnapshotError, Summary, discard, restore, save, verify};
pub(crate) use template::Template;
pub(crate) use transaction::{Expect, Transaction, WriteError};
pub(crate) use watchers::Scope;
