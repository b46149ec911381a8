//! Figures by topology domain: nodes that have a label in common, by its value.

use std::sync::Arc;

use crate::nodes::{LabelColumn, PerNode, Slot};

/// A figure for each value of a node label.
#[derive(Debug, Clone)]
pub(super) struct PerDomain {
    column: Arc<LabelColumn>,
    figures: Vec<i64>,
}

impl PerDomain {
    /// All are `start`.
    pub(super) fn new(column: Arc<LabelColumn>, start: i64) -> Self {
        let figures = vec![start; column.n_values()];
        Self { column, figures }
    }

    pub(super) fn column(&self) -> &LabelColumn {
        &self.column
    }

    /// The figure of a node's domain; `None` when it is in none.
    pub(super) fn at(&self, slot: Slot) -> Option<i64> {
        Some(self.figures[self.column.of(slot)? as usize])
    }

    /// The figure of a node's domain, to be changed.
    pub(super) fn at_mut(&mut self, slot: Slot) -> Option<&mut i64> {
        Some(&mut self.figures[self.column.of(slot)? as usize])
    }

    /// Adds what is on nodes to their domains, `times` each; how many there were on nodes that are in one.
    pub(super) fn add(&mut self, nodes: &PerNode, times: i64) -> i64 {
        let mut total = 0;
        for (slot, count) in nodes.iter() {
            if let Some(figure) = self.at_mut(slot) {
                *figure += i64::from(count) * times;
                total += i64::from(count);
            }
        }
        total
    }

    pub(super) fn figures(&self) -> &[i64] {
        &self.figures
    }

    pub(super) fn figures_mut(&mut self) -> &mut [i64] {
        &mut self.figures
    }
}
