//! Columns of node labels. The column of a label key, built when a plugin first reads the key, numbers the distinct
//! values. It stores the number of each node's value.

use evenkeel_api::StrMap;
use hashbrown::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Slot;

/// Value number of a node without the label.
const NONE: u32 = u32::MAX;

/// Maximum number of columns. When it is reached, all columns are dropped and built anew on demand.
const MAX_COLUMNS: usize = 256;

/// Values of one label key on all nodes, numbered from 0. A numbered value may no longer be on any node.
#[derive(Debug, Clone, Default)]
pub struct LabelColumn {
    key: Box<str>,
    /// Number of the value on each node, by slot.
    values: Vec<u32>,
    ids: HashMap<Arc<str>, u32>,
    /// Values by number.
    texts: Vec<Arc<str>>,
    /// Number of nodes with each value.
    nodes: Vec<u32>,
    /// Number of nodes that have the label.
    labelled: usize,
}

impl LabelColumn {
    /// Returns the label key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the number of the node's value, or `None` if the node lacks the label.
    pub fn value_of(&self, slot: Slot) -> Option<u32> {
        self.values.get(slot as usize).copied().filter(|value| *value != NONE)
    }

    /// Returns the number of a value, or `None` if no node ever had the value.
    pub fn id(&self, value: &str) -> Option<u32> {
        self.ids.get(value).copied()
    }

    /// Returns the value with this number.
    pub fn text(&self, id: u32) -> &str {
        &self.texts[id as usize]
    }

    /// Returns the number of distinct values, including those no longer in use.
    pub fn n_values(&self) -> usize {
        self.texts.len()
    }

    /// Returns the number of nodes with each value, indexed by the value's number.
    pub fn nodes_by_value(&self) -> &[u32] {
        &self.nodes
    }

    /// Returns the number of nodes that have the label.
    pub fn n_labelled(&self) -> usize {
        self.labelled
    }

    fn set(&mut self, slot: Slot, value: Option<&str>) {
        let index = slot as usize;
        if index >= self.values.len() {
            self.values.resize(index + 1, NONE);
        }
        if let Some(before) = self.value_of(slot) {
            self.nodes[before as usize] -= 1;
            self.labelled -= 1;
        }
        self.values[index] = value.map_or(NONE, |value| {
            let id = self.number(value);
            self.nodes[id as usize] += 1;
            self.labelled += 1;
            id
        });
    }

    /// Returns the number of a value, and assigns the next number to a new value.
    fn number(&mut self, value: &str) -> u32 {
        if let Some(id) = self.id(value) {
            return id;
        }
        let (id, text): (u32, Arc<str>) = (self.texts.len() as u32, value.into());
        self.ids.insert(Arc::clone(&text), id);
        self.texts.push(text);
        self.nodes.push(0);
        id
    }

    /// Reports whether so many numbers are unused that the column should be built anew.
    fn is_stale(&self) -> bool {
        self.texts.len() > 2 * self.values.len() + 64
    }
}

/// Columns built so far, by label key.
#[derive(Debug, Default)]
pub(super) struct Labels(Mutex<HashMap<Box<str>, Arc<LabelColumn>>>);

impl Labels {
    /// Returns the column of `key`, built from `nodes` on first use.
    pub(super) fn column<'a>(
        &self,
        key: &str,
        nodes: impl Iterator<Item = (Slot, &'a StrMap)>,
    ) -> Arc<LabelColumn> {
        // A poisoned lock is safe to use: only complete columns are inserted.
        let mut columns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(column) = columns.get(key) {
            return Arc::clone(column);
        }
        if columns.len() >= MAX_COLUMNS {
            columns.clear();
        }
        let mut column = LabelColumn { key: key.into(), ..LabelColumn::default() };
        for (slot, labels) in nodes {
            column.set(slot, labels.get(key));
        }
        let column = Arc::new(column);
        columns.insert(key.into(), Arc::clone(&column));
        column
    }

    /// Replaces the labels of a node; `None` means that it was deleted. Attempts that hold a column keep its old
    /// version.
    pub(super) fn set(&mut self, slot: Slot, labels: Option<&StrMap>) {
        let columns = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        columns.retain(|key, column| {
            let value = labels.and_then(|labels| labels.get(key));
            if column.value_of(slot).map(|id| column.text(id)) != value {
                Arc::make_mut(column).set(slot, value);
            }
            !column.is_stale()
        });
    }
}
