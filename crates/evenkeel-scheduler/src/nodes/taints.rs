//! Distinct taint lists. Many nodes share a list, so a plugin evaluates each list only once for a pod.

use evenkeel_api::views::Taint;
use std::sync::Arc;

/// Taint lists with the number of nodes that share each. Unused entries are empty.
#[derive(Debug, Default)]
pub(super) struct TaintSets {
    sets: Vec<Arc<[Taint]>>,
    /// Number of nodes of each list, by its index.
    users: Vec<u32>,
}

impl TaintSets {
    /// Returns all lists, by index.
    pub(super) fn all(&self) -> &[Arc<[Taint]>] {
        &self.sets
    }

    /// Returns the index of an equal list and adds one node to its count.
    pub(super) fn acquire(&mut self, taints: &[Taint]) -> u32 {
        let used = |index: &usize| self.users[*index] > 0;
        let known = (0..self.sets.len())
            .filter(used)
            .find(|index| have_same_effect(&self.sets[*index], taints));
        let index = known.unwrap_or_else(|| {
            let free = self.users.iter().position(|users| *users == 0).unwrap_or_else(|| {
                self.sets.push(Arc::from([]));
                self.users.push(0);
                self.sets.len() - 1
            });
            self.sets[free] = taints.to_vec().into();
            free
        });
        self.users[index] += 1;
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Subtracts one node from the list's count.
    pub(super) fn release(&mut self, index: u32) {
        let index = index as usize;
        self.users[index] -= 1;
        if self.users[index] == 0 {
            self.sets[index] = Arc::from([]);
        }
    }
}

/// Reports whether two lists have the same effect on pods: they differ at most in `timeAdded`.
fn have_same_effect(known: &[Taint], new: &[Taint]) -> bool {
    let same = |(known, new): (&Taint, &Taint)| {
        known.key == new.key && known.value == new.value && known.effect == new.effect
    };
    known.len() == new.len() && known.iter().zip(new).all(same)
}
