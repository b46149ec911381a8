//! Budget for the cost of one request.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum cost of the CEL expressions of all policies and webhooks for one request. Upstream allows a third of it for
/// one policy with one parameter, and bounds a whole request only by its deadline.
const MAX_EXPRESSION_COST: u64 = 30_000_000;

/// Remaining cost that a request may cause. All evaluations for the request draw from it.
#[derive(Debug)]
pub(crate) struct Budget {
    expressions: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { expressions: AtomicU64::new(MAX_EXPRESSION_COST) }
    }
}

impl Budget {
    /// Draws the cost `max` for expressions, or the rest of the budget if less remains.
    pub(crate) fn expressions(&self, max: u64) -> Drawn<'_> {
        let take = |left: u64| Some(left.saturating_sub(max));
        let before = self.expressions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        Drawn { from: &self.expressions, left: before.unwrap_or_default().min(max) }
    }
}

/// Part of a budget to spend. Its drop returns the unspent rest to the budget.
#[derive(Debug)]
pub(crate) struct Drawn<'a> {
    from: &'a AtomicU64,
    left: u64,
}

impl Deref for Drawn<'_> {
    type Target = u64;

    fn deref(&self) -> &u64 {
        &self.left
    }
}

impl DerefMut for Drawn<'_> {
    fn deref_mut(&mut self) -> &mut u64 {
        &mut self.left
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        self.from.fetch_add(self.left, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspent_cost_returns_to_the_budget() {
        let budget = Budget::default();
        let part = MAX_EXPRESSION_COST / 3;
        for (spent, left) in [(part, 2 * part), (0, 2 * part), (part, part), (part, 0)] {
            let mut drawn = budget.expressions(part);
            assert_eq!(*drawn, part);
            *drawn -= spent;
            drop(drawn);
            assert_eq!(*budget.expressions(u64::MAX), left);
        }
        assert_eq!(*budget.expressions(part), 0);
    }
}
