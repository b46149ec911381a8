//! Opens the file of a data folder and loads the state from it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::backend::{Backend as _, BackendError};
use super::durable::Durable;
use super::engine::{Engine, NEW_SUFFIX, NotOpened, RESERVE_FILE};
use super::error::OpenError;
use super::folder::Folder;
use super::index::IndexedResources;
use super::load;
use super::record::Transformer;
use super::state::State;
use crate::clock::Clock;

/// Name of the store's file in the data folder.
pub(super) const DATABASE: &str = "evenkeel.redb";

/// Returns whether a file in the data folder belongs to the store.
pub(crate) fn is_its_file(name: &str) -> bool {
    match name.strip_prefix(DATABASE) {
        Some(suffix) => suffix.is_empty() || suffix == NEW_SUFFIX,
        None => name == RESERVE_FILE,
    }
}

/// Returns whether a data folder has a store's file.
pub(crate) fn has_file(folder: &Path) -> bool {
    folder.join(DATABASE).exists()
}

/// Opens or creates the file, and loads the state from all its records.
pub(super) fn open(
    folder: Arc<dyn Folder>,
    transformer: Arc<dyn Transformer>,
    indexed_resources: IndexedResources,
    clock: Clock,
) -> Result<(State, Durable), OpenError> {
    let folder_path = folder.display_path();
    let path = format!("{folder_path}/{DATABASE}");
    let engine = Engine::open(folder, DATABASE).map_err(|error| open_error(&path, error))?;
    let loaded = load::load(&engine, &*transformer, indexed_resources);
    let (state, history) = loaded.map_err(|error| open_error(&path, NotOpened::Failed(error)))?;
    let extent = engine.extent();
    tracing::info!(
        path,
        revision = extent.revision,
        history_since = extent.compacted,
        "the store is open"
    );
    let durable = Durable::new(Box::new(engine), transformer, history, clock, folder_path);
    let durable = if extent.revision > 0 { durable.reserve_now() } else { durable };
    Ok((state, durable))
}

/// Converts the error of opening a file.
pub(super) fn open_error(path: &str, error: NotOpened) -> OpenError {
    let path = path.to_owned();
    match error {
        NotOpened::Locked => OpenError::Locked(path),
        NotOpened::Failed(BackendError::Damaged(why)) => OpenError::Damaged { path, why },
        NotOpened::Failed(BackendError::Undecryptable(why)) => {
            OpenError::Undecryptable { path, why }
        }
        NotOpened::Failed(BackendError::Full(why)) => {
            OpenError::Io { path, source: io::Error::new(io::ErrorKind::StorageFull, why) }
        }
        NotOpened::Failed(BackendError::Io(why) | BackendError::NotSynced(why)) => {
            OpenError::Io { path, source: io::Error::other(why) }
        }
    }
}
