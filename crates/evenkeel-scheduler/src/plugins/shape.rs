//! Configured function from utilization to score.
//!
//! Upstream: `plugins/helper/shape_score.go`.

use crate::framework::MAX_NODE_SCORE;

/// Maximum score of a configured point. Upstream: `MaxCustomPriorityScore`.
const MAX_CUSTOM_PRIORITY_SCORE: i64 = 10;
/// Full utilization, in percent. Upstream: `maxUtilization`.
const MAX_UTILIZATION: i64 = 100;

/// Points (utilization in percent, score scaled to `MAX_NODE_SCORE`) by increasing utilization. The score is
/// interpolated linearly between two points. Outside them, the nearest point's score counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape(Vec<(i64, i64)>);

impl Shape {
    /// Builds the shape from configured points (utilization in percent, score from 0 to 10) in order of utilization.
    pub fn new(points: &[(i64, i64)]) -> Self {
        let scaled = |(utilization, score): &(i64, i64)| {
            (*utilization, score * (MAX_NODE_SCORE / MAX_CUSTOM_PRIORITY_SCORE))
        };
        Self(points.iter().map(scaled).collect())
    }

    /// Returns the score of a utilization in percent.
    pub fn at(&self, utilization: i64) -> i64 {
        let points = &self.0;
        let next = points.partition_point(|(point, _)| *point < utilization);
        let previous_point = next.checked_sub(1).and_then(|previous| points.get(previous));
        match (previous_point, points.get(next)) {
            (None, None) => 0,
            (None, Some((_, score))) | (Some((_, score)), None) => *score,
            (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (utilization - x0) / (x1 - x0),
        }
    }

    /// Returns the score of the utilization `requested / capacity`. A request above the capacity, or a capacity of 0,
    /// counts as full utilization.
    pub fn score_for(&self, requested: i64, capacity: i64) -> i64 {
        if capacity == 0 || requested > capacity {
            return self.at(MAX_UTILIZATION);
        }
        self.at((i128::from(requested) * i128::from(MAX_UTILIZATION) / i128::from(capacity)) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_interpolated_between_points_and_constant_outside() {
        let shape = Shape::new(&[(10, 0), (50, 10), (90, 5)]);
        for (utilization, expected) in
            [(0, 0), (10, 0), (30, 50), (50, 100), (70, 75), (90, 50), (100, 50)]
        {
            assert_eq!(shape.at(utilization), expected, "{utilization}");
        }
    }

    #[test]
    fn large_requests_do_not_overflow() {
        assert_eq!(Shape::new(&[(0, 0), (100, 10)]).score_for(1 << 60, 1 << 61), 50);
    }

    #[test]
    fn zero_capacity_counts_as_full() {
        assert_eq!(Shape::new(&[(0, 0), (100, 10)]).score_for(5, 0), 100);
    }

    #[test]
    fn request_above_the_capacity_counts_as_full() {
        assert_eq!(Shape::new(&[(0, 0), (100, 10), (200, 0)]).score_for(6, 4), 100);
    }
}
