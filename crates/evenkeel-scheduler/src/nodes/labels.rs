//! Columns of node labels. The column of a label key is built when a plugin first reads the key. It gives each distinct
//! value an id, and stores the id of each node's value.

use evenkeel_api::StrMap;
use hashbrown::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Slot;

/// Value id of a node without the label.
const NO_VALUE: u32 = u32::MAX;

/// Maximum number of columns. When it is reached, all columns are dropped and rebuilt on demand.
const MAX_COLUMNS: usize = 256;

/// Values of one label key on all nodes, with ids from 0. A value keeps its id when the last node loses it.
#[derive(Debug, Clone, Default)]
pub struct LabelColumn {
    key: Box<str>,
    /// Id of the value on each node, by slot.
    value_ids: Vec<u32>,
    ids: HashMap<Arc<str>, u32>,
    /// Values by id.
    values: Vec<Arc<str>>,
    /// Number of nodes with each value, by the value's id.
    node_counts: Vec<u32>,
    /// Number of nodes that have the label.
    n_labelled: usize,
}

impl LabelColumn {
    /// Returns the label key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the id of the node's value, or `None` if the node lacks the label.
    pub fn value_id_of(&self, slot: Slot) -> Option<u32> {
        self.value_ids.get(slot as usize).copied().filter(|value| *value != NO_VALUE)
    }

    /// Returns the id of a value, or `None` if no node ever had the value.
    pub fn value_id(&self, value: &str) -> Option<u32> {
        self.ids.get(value).copied()
    }

    /// Returns the value with this id.
    pub fn value(&self, id: u32) -> &str {
        &self.values[id as usize]
    }

    /// Returns the number of distinct values, including those no longer in use.
    pub fn n_values(&self) -> usize {
        self.values.len()
    }

    /// Returns the number of nodes with each value, by the value's id.
    pub fn node_counts(&self) -> &[u32] {
        &self.node_counts
    }

    /// Returns the number of nodes that have the label.
    pub fn n_labelled(&self) -> usize {
        self.n_labelled
    }

    /// Sets or removes the label's value of a node, and updates the counts.
    fn set(&mut self, slot: Slot, value: Option<&str>) {
        let index = slot as usize;
        if index >= self.value_ids.len() {
            self.value_ids.resize(index + 1, NO_VALUE);
        }
        if let Some(old_id) = self.value_id_of(slot) {
            self.node_counts[old_id as usize] -= 1;
            self.n_labelled -= 1;
        }
        self.value_ids[index] = value.map_or(NO_VALUE, |value| {
            let id = self.find_or_add_id(value);
            self.node_counts[id as usize] += 1;
            self.n_labelled += 1;
            id
        });
    }

    /// Returns the id of a value. A new value gets the next id.
    fn find_or_add_id(&mut self, value: &str) -> u32 {
        if let Some(id) = self.value_id(value) {
            return id;
        }
        let (id, value): (u32, Arc<str>) = (self.values.len() as u32, value.into());
        self.ids.insert(Arc::clone(&value), id);
        self.values.push(value);
        self.node_counts.push(0);
        id
    }

    /// Returns whether the column may have so many values without a node that it should be rebuilt.
    fn is_stale(&self) -> bool {
        self.values.len() > 2 * self.value_ids.len() + 64
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
            if column.value_id_of(slot).map(|id| column.value(id)) != value {
                Arc::make_mut(column).set(slot, value);
            }
            !column.is_stale()
        });
    }
}
