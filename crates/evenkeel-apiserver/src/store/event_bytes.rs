//! Byte counters of recent events, per ring and for all rings together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum total bytes of the events in all rings, with their cached frames.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// Part of [`MAX_BYTES`] that events leave free for frames that are cached later.
const RESERVED_FOR_FRAMES: usize = MAX_BYTES / 8;

/// Byte counters of one ring's events and of all rings.
#[derive(Debug, Default)]
pub(super) struct RingBytes {
    /// Bytes of the ring's events.
    own: AtomicUsize,
    /// Bytes of the events of all rings of the store.
    all: Arc<AtomicUsize>,
}

impl RingBytes {
    /// Creates the counters of a new ring.
    pub(super) fn new(all: &HistoryBytes) -> Self {
        Self { own: AtomicUsize::new(0), all: all.0.clone() }
    }

    /// Replaces an event's counted bytes, `before`, with `now`.
    pub(super) fn change(&self, before: usize, now: usize) {
        for count in [&self.own, &self.all] {
            count.fetch_add(now, Ordering::Relaxed);
            count.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// Returns whether a frame of this size may be cached.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.all.load(Ordering::Relaxed).saturating_add(bytes) <= MAX_BYTES
    }

    /// Returns the bytes of the ring's own events.
    pub(super) fn own(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }
}

/// Byte counter of the events of all rings of a store.
#[derive(Debug, Clone, Default)]
pub(super) struct HistoryBytes(Arc<AtomicUsize>);

impl HistoryBytes {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns by how many bytes the events exceed their part of [`MAX_BYTES`].
    pub(super) fn excess(&self) -> usize {
        self.bytes().saturating_sub(MAX_BYTES - RESERVED_FOR_FRAMES)
    }
}
