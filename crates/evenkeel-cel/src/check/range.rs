//! Ranges of sizes and costs, whose arithmetic saturates.
//!
//! Upstream: `SizeEstimate` and `CostEstimate` of cel-go's `checker/cost.go`.

/// Least and most of a size or a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) fn new(min: u64, max: u64) -> Self {
        Self { min, max }
    }

    pub(super) fn fixed(of: u64) -> Self {
        Self { min: of, max: of }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Multiplies by a factor, rounded up.
    pub(super) fn scaled(self, factor: f64) -> Self {
        // A float saturates when it becomes an integer.
        let scale = |of: u64| (of as f64 * factor).ceil() as u64;
        Self { min: scale(self.min), max: scale(self.max) }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}
