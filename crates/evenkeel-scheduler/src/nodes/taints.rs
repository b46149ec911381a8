//! Distinct taint lists. Many nodes share a list, so a plugin evaluates each list only once for a pod.

use evenkeel_api::views::Taint;
use std::sync::Arc;

/// Taint lists with the number of nodes that share each. Unused entries are empty.
#[derive(Debug, Default)]
pub(super) struct TaintSets {
    sets: Vec<Arc<[Taint]>>,
    /// Number of nodes that share each list, by its index.
    node_counts: Vec<u32>,
}

impl TaintSets {
    /// Returns all lists, by index.
    pub(super) fn all(&self) -> &[Arc<[Taint]>] {
        &self.sets
    }

    /// Returns the index of an equal list, which is added if there is none. Adds one node to its count.
    pub(super) fn acquire(&mut self, taints: &[Taint]) -> u32 {
        let is_equal = |index: &usize| {
            self.node_counts[*index] > 0 && have_same_effect(&self.sets[*index], taints)
        };
        let index = (0..self.sets.len()).find(is_equal).unwrap_or_else(|| {
            let unused = self.node_counts.iter().position(|nodes| *nodes == 0);
            let unused = unused.unwrap_or_else(|| {
                self.sets.push(Arc::from([]));
                self.node_counts.push(0);
                self.sets.len() - 1
            });
            self.sets[unused] = taints.to_vec().into();
            unused
        });
        self.node_counts[index] += 1;
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Subtracts one node from the list's count.
    pub(super) fn release(&mut self, index: u32) {
        let index = index as usize;
        self.node_counts[index] -= 1;
        if self.node_counts[index] == 0 {
            self.sets[index] = Arc::from([]);
        }
    }
}

/// Returns whether two lists have the same effect on pods: they differ at most in `timeAdded`.
fn have_same_effect(a: &[Taint], b: &[Taint]) -> bool {
    let is_same =
        |(a, b): (&Taint, &Taint)| a.key == b.key && a.value == b.value && a.effect == b.effect;
    a.len() == b.len() && a.iter().zip(b).all(is_same)
}
