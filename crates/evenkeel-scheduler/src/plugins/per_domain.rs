//! Values by topology domain. The nodes with equal values of a label form a domain.

use std::sync::Arc;

use crate::nodes::{LabelColumn, PerNode, Slot};

/// A number for each value of a node label.
#[derive(Debug, Clone)]
pub(super) struct PerDomain {
    column: Arc<LabelColumn>,
    values: Vec<i64>,
}

impl PerDomain {
    /// Creates a value for each domain, all equal to `initial`.
    pub(super) fn new(column: Arc<LabelColumn>, initial: i64) -> Self {
        let values = vec![initial; column.n_values()];
        Self { column, values }
    }

    /// Returns the values of the topology key by node.
    pub(super) fn column(&self) -> &LabelColumn {
        &self.column
    }

    /// Returns the value of a node's domain, or `None` if the node lacks the label.
    pub(super) fn at(&self, slot: Slot) -> Option<i64> {
        Some(self.values[self.column.value_id_of(slot)? as usize])
    }

    /// Returns a mutable reference to the value of a node's domain.
    pub(super) fn at_mut(&mut self, slot: Slot) -> Option<&mut i64> {
        Some(&mut self.values[self.column.value_id_of(slot)? as usize])
    }

    /// Adds the count of each node, multiplied by `factor`, to the value of its domain. Returns the sum of the counts
    /// on nodes that have the label.
    pub(super) fn add(&mut self, counts: &PerNode, factor: i64) -> i64 {
        let mut total = 0;
        for (slot, count) in counts.iter() {
            if let Some(value) = self.at_mut(slot) {
                *value += i64::from(count) * factor;
                total += i64::from(count);
            }
        }
        total
    }

    /// Returns the value of each domain.
    pub(super) fn values(&self) -> &[i64] {
        &self.values
    }

    /// Returns the value of each domain as a mutable reference.
    pub(super) fn values_mut(&mut self) -> &mut [i64] {
        &mut self.values
    }
}
