//! Budget for the cost of a request's CEL expressions.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum cost of the CEL expressions of all policies and webhooks for one request.
///
/// Upstream has no such maximum: each policy may spend 10,000,000 for each parameter, until the request's deadline.
const MAX_EXPRESSION_COST: u64 = 30_000_000;

/// Cost that a request may still cause. All evaluations for the request draw from it.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Remaining cost in CEL cost units.
    expression_cost: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { expression_cost: AtomicU64::new(MAX_EXPRESSION_COST) }
    }
}

impl Budget {
    /// Draws the cost `max` for expressions, or the rest of the budget if less remains.
    pub(crate) fn draw_expression_cost(&self, max: u64) -> Drawn<'_> {
        let draw = |remaining: u64| Some(remaining.saturating_sub(max));
        // The update cannot fail, because `draw` always returns a value.
        let (Ok(before) | Err(before)) =
            self.expression_cost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, draw);
        Drawn { from: &self.expression_cost, unspent: before.min(max) }
    }
}

/// Part of a budget to spend. Dropping it returns the unspent rest to the budget.
#[derive(Debug)]
pub(crate) struct Drawn<'a> {
    from: &'a AtomicU64,
    unspent: u64,
}

impl Deref for Drawn<'_> {
    type Target = u64;

    fn deref(&self) -> &u64 {
        &self.unspent
    }
}

impl DerefMut for Drawn<'_> {
    fn deref_mut(&mut self) -> &mut u64 {
        &mut self.unspent
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        self.from.fetch_add(self.unspent, Ordering::Relaxed);
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
            let mut drawn = budget.draw_expression_cost(part);
            assert_eq!(*drawn, part);
            *drawn -= spent;
            drop(drawn);
            assert_eq!(*budget.draw_expression_cost(u64::MAX), left);
        }
        assert_eq!(*budget.draw_expression_cost(part), 0);
    }
}
