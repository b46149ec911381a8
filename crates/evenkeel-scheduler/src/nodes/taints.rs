//! Distinct lists of taints: nodes mostly share a few, so that each is judged once for a pod.

use evenkeel_api::views::Taint;
use std::sync::Arc;

/// The lists, each with how many nodes have it. One that no node has is empty.
#[derive(Debug, Default)]
pub(super) struct TaintSets {
    sets: Vec<Arc<[Taint]>>,
    users: Vec<u32>,
}

impl TaintSets {
    pub(super) fn all(&self) -> &[Arc<[Taint]>] {
        &self.sets
    }

    /// The number of the list with these taints, which one more node has.
    pub(super) fn enter(&mut self, taints: &[Taint]) -> u32 {
        let used = |n: &usize| self.users[*n] > 0;
        let known = (0..self.sets.len()).filter(used).find(|n| alike(&self.sets[*n], taints));
        let at = known.unwrap_or_else(|| {
            let free = self.users.iter().position(|users| *users == 0).unwrap_or_else(|| {
                self.sets.push(Arc::from([]));
                self.users.push(0);
                self.sets.len() - 1
            });
            self.sets[free] = taints.to_vec().into();
            free
        });
        self.users[at] += 1;
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// One node less has the list.
    pub(super) fn leave(&mut self, at: u32) {
        let at = at as usize;
        self.users[at] -= 1;
        if self.users[at] == 0 {
            self.sets[at] = Arc::from([]);
        }
    }
}

/// Whether two lists ask the same of pods.
fn alike(known: &[Taint], new: &[Taint]) -> bool {
    let same = |(known, new): (&Taint, &Taint)| {
        known.key == new.key && known.value == new.value && known.effect == new.effect
    };
    known.len() == new.len() && known.iter().zip(new).all(same)
}
