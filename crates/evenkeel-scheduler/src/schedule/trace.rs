//! How long the parts of an attempt took and which plugins were asked, for metrics.

use smallvec::SmallVec;
use std::time::Duration;
use tokio::time::Instant;

use super::choice::mix;
use crate::{
    framework::{Point, Status},
    nodes::Slot,
};

/// In one attempt of so many, plugins are timed one by one.
const SAMPLED: u64 = 10;
/// In such an attempt, the filters are timed on one node of so many.
const TIMED_NODES: Slot = 64;

/// What an attempt notes of itself.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    sampled: bool,
    /// How long all plugins of a point took together, and how that ended.
    pub(crate) points: SmallVec<[(Point, &'static str, Duration); 6]>,
    /// How long one plugin took, and what it said.
    pub(crate) plugins: Vec<(Point, usize, &'static str, Duration)>,
    /// How often each plugin's filter was asked.
    pub(crate) filtered: SmallVec<[u32; 32]>,
    /// How often other plugins were asked.
    pub(crate) asked: SmallVec<[(Point, usize, u32); 32]>,
}

impl Trace {
    pub(super) fn new(seed: u64, n_plugins: usize) -> Self {
        Self {
            sampled: mix(!seed).is_multiple_of(SAMPLED),
            filtered: SmallVec::from_elem(0, n_plugins),
            ..Self::default()
        }
    }

    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    pub(crate) fn times_plugins(&self) -> bool {
        self.sampled
    }

    /// When a plugin begins, if plugins are timed.
    pub(crate) fn begin(&self) -> Option<Instant> {
        self.sampled.then(Instant::now)
    }

    /// A plugin that is timed, and not counted, has ended.
    pub(crate) fn took(
        &mut self,
        point: Point,
        plugin: usize,
        began: Option<Instant>,
        why: Option<&Status>,
    ) {
        if let Some(began) = began {
            self.plugins.push((point, plugin, code(why), began.elapsed()));
        }
    }

    pub(super) fn times_node(&self, slot: Slot) -> bool {
        self.sampled && slot.is_multiple_of(TIMED_NODES)
    }

    pub(super) fn asked(
        &mut self,
        point: Point,
        plugin: usize,
        began: Option<Instant>,
        why: Option<&Status>,
    ) {
        match (point, self.filtered.get_mut(plugin)) {
            (Point::Filter, Some(count)) => *count += 1,
            _ => self.asked.push((point, plugin, 1)),
        }
        if let Some(began) = began {
            self.plugins.push((point, plugin, code(why), began.elapsed()));
        }
    }

    /// A plugin had nothing to do with the pod: that is not counted, as upstream has it.
    pub(super) fn skipped(&mut self, point: Point, plugin: usize, began: Option<Instant>) {
        if let Some(began) = began {
            self.plugins.push((point, plugin, "Skip", began.elapsed()));
        }
    }

    /// A plugin scored so many nodes.
    pub(super) fn scored(&mut self, plugin: usize, n_nodes: usize, began: Option<Instant>) {
        self.asked.push((Point::Score, plugin, u32::try_from(n_nodes).unwrap_or(u32::MAX)));
        if let Some(began) = began {
            self.plugins.push((Point::Score, plugin, code(None), began.elapsed()));
        }
    }

    pub(crate) fn ran(&mut self, point: Point, began: Instant, why: Option<&Status>) {
        self.points.push((point, code(why), began.elapsed()));
    }
}

/// Upstream's label `status`.
fn code(why: Option<&Status>) -> &'static str {
    why.map_or("Success", |why| why.code.as_str())
}
