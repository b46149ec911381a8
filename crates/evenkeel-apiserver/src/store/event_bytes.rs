//! What the recent events hold in memory: counts that all rings share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the events of all rings, with their frames.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// Bytes that events leave to frames that are made later.
const FOR_FRAMES: usize = MAX_BYTES / 8;

/// Bytes that the events of a ring hold, and those of all rings.
#[derive(Debug, Default)]
pub(super) struct RingBytes {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl RingBytes {
    /// Counts of a new ring.
    pub(super) fn of(all: &HistoryBytes) -> Self {
        Self { own: AtomicUsize::new(0), all: all.0.clone() }
    }

    /// Replaces what was counted of an event.
    pub(super) fn change(&self, before: usize, now: usize) {
        for count in [&self.own, &self.all] {
            count.fetch_add(now, Ordering::Relaxed);
            count.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// Whether this many bytes of a frame may be kept.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.all.load(Ordering::Relaxed).saturating_add(bytes) <= MAX_BYTES
    }

    /// Bytes of the ring's own events.
    pub(super) fn own(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }
}

/// Bytes that the events of all rings of a store hold.
#[derive(Debug, Clone, Default)]
pub(super) struct HistoryBytes(Arc<AtomicUsize>);

impl HistoryBytes {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Bytes that have to be freed before further events come.
    pub(super) fn excess(&self) -> usize {
        self.bytes().saturating_sub(MAX_BYTES - FOR_FRAMES)
    }
}
