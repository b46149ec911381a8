//! Watch events: changes of stored objects.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::entry::{Change, Entry};
use crate::output::Format;

/// A watch event: one change of an object.
#[derive(Debug)]
pub(crate) struct Event {
    /// The object after the change; after a deletion as it was last, at the deletion's revision.
    pub(crate) entry: Arc<Entry>,
    /// The object before.
    pub(crate) previous: Option<Arc<Entry>>,
    /// Frames in forms other than the stored one, made once however many watch.
    frames: Mutex<Vec<(Format, Change, Bytes)>>,
}

impl Event {
    pub(crate) fn new(entry: Arc<Entry>, previous: Option<Arc<Entry>>) -> Self {
        Self { entry, previous, frames: Mutex::new(Vec::new()) }
    }

    /// The frame in this form, made by `make` when nobody has needed it yet.
    pub(crate) fn frame<E>(
        &self,
        format: &Format,
        change: Change,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let find = |frames: &[(Format, Change, Bytes)]| {
            frames
                .iter()
                .find(|(f, c, _)| *c == change && f == format)
                .map(|(_, _, frame)| frame.clone())
        };
        if let Some(frame) = find(&self.frames.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(frame);
        }
        let frame = make()?;
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if find(&frames).is_none() {
            frames.push((format.clone(), change, frame.clone()));
        }
        Ok(frame)
    }
}

/// That revision is no longer (or not yet) held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired;
