//! Warnings about a request.

use std::sync::{Mutex, PoisonError};

/// Warnings that the answer of a request brings along, in the order of the stages that gave them.
///
/// Upstream: `recorder`.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds warnings. A text that the answer has already is left out when it is written.
    ///
    /// Upstream: `AddWarning`.
    pub(crate) fn add(&self, more: impl IntoIterator<Item = String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
    }

    /// Returns all of them.
    pub(crate) fn into_texts(self) -> Vec<String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
