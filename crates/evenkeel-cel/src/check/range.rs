//! Ranges of sizes and costs, whose arithmetic saturates.
//!
//! Upstream: `SizeEstimate` and `CostEstimate` of cel-go's `checker/cost.go`.

/// Minimum and maximum of a size or a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    /// Range of a size without a known bound.
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) fn new(min: u64, max: u64) -> Self {
        Self { min, max }
    }

    pub(super) fn fixed(value: u64) -> Self {
        Self { min: value, max: value }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Multiplies both bounds by a factor. The results are rounded up.
    pub(super) fn scaled(self, factor: f64) -> Self {
        // The cast of a float to an integer saturates.
        let scale = |bound: u64| (bound as f64 * factor).ceil() as u64;
        Self { min: scale(self.min), max: scale(self.max) }
    }

    /// Returns the smallest range that contains both.
    pub(super) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}
