//! Warnings in the response to a request.

use std::sync::{Mutex, PoisonError};

/// Warnings for the client, in the order in which stages added them.
///
/// Upstream: `recorder`.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds warnings. The response contains each warning once.
    ///
    /// Upstream: `AddWarning`.
    pub(crate) fn add(&self, more: impl IntoIterator<Item = String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
    }

    /// Returns all warnings.
    pub(crate) fn into_texts(self) -> Vec<String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
