//! Counts of pods by node.

use crate::nodes::Slot;

/// Non-zero counts, sorted by slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PerNode(Vec<(Slot, u32)>);

impl PerNode {
    /// Counts a pod on the node in this slot.
    pub(super) fn add(&mut self, slot: Slot) {
        match self.0.binary_search_by_key(&slot, |(counted, _)| *counted) {
            Ok(index) => self.0[index].1 += 1,
            Err(index) => self.0.insert(index, (slot, 1)),
        }
    }

    /// Removes a pod from the count of the node in this slot.
    pub(super) fn subtract(&mut self, slot: Slot) {
        let Ok(index) = self.0.binary_search_by_key(&slot, |(counted, _)| *counted) else { return };
        self.0[index].1 -= 1;
        if self.0[index].1 == 0 {
            self.0.remove(index);
        }
    }

    /// Returns the slots with their numbers of pods, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, u32)> {
        self.0.iter().copied()
    }

    /// Returns whether no node has a pod.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
