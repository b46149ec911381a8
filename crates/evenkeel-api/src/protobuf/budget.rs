//! Limits of one decoding: nesting, and the number of values.

use crate::decode::WireError;
use crate::json;

/// What the rest of a decoding may still build.
#[derive(Debug)]
pub(super) struct Budget {
    /// Number of JSON arrays and objects around the current value.
    depth: usize,
    /// Number of values that may still be built.
    values: usize,
}

impl Budget {
    /// Returns the budget of a message that nothing encloses, of at most `values` values.
    pub(super) fn new(values: usize) -> Self {
        Self { depth: 0, values }
    }

    /// Returns the number of levels that the current value may have.
    pub(super) fn levels(&self) -> usize {
        json::MAX_DEPTH.saturating_sub(self.depth)
    }

    /// Enters an array or an object.
    pub(super) fn enter(&mut self) -> Result<(), WireError> {
        if self.levels() == 0 {
            return Err(WireError::new(json::TOO_DEEP));
        }
        self.depth = self.depth.saturating_add(1);
        Ok(())
    }

    /// Leaves an array or an object.
    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Draws values that are built, or work that takes as long.
    pub(super) fn draw(&mut self, values: usize) -> Result<(), WireError> {
        match self.values.checked_sub(values) {
            Some(left) => {
                self.values = left;
                Ok(())
            }
            None => Err(WireError::new(json::TOO_MANY_VALUES)),
        }
    }
}
