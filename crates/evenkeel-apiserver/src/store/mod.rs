//! The store: every object as encoded bytes in memory, one revision counter, transactions with preconditions, a ring of
//! recent events for each collection, and, where a data folder is given, a log on disk. What is not on disk is neither
//! acknowledged nor shown to anybody.

mod cursor;
mod entry;
mod event;
mod handle;
mod index;
mod list;
mod log;
mod ring;
mod shared;
mod size;
mod state;
mod transaction;
mod watchers;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use cursor::Cursor;
pub(crate) use entry::{Change, Encoded, Entry, SelectionAttributes};
pub(crate) use event::Event;
pub(crate) use handle::{Store, changed, storable};
pub(crate) use index::IndexedResources;
pub(crate) use list::{Range, Snapshot};
pub use log::OpenError;
pub(crate) use transaction::{Expect, Transaction, WriteError};
pub(crate) use watchers::Scope;
