//! Divides the server's seats among priority levels. Shares determine the nominal limits. Every ten seconds, the
//! current limits follow each level's demand within the bounds of lending and borrowing.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `nominalConcurrencyShares`, `lendablePercent`, `borrowingLimitPercent` | `limits` |
//! | Levels lend and borrow seats by smoothed demand | `SeatDemand`, `borrow` |
//! | Seat limits proportional to targets between bounds | `compute_concurrency_allocation` |

use super::integrator::Observation;

/// Decay of the smoothed seat demand per adjustment (10 s): it halves in five minutes.
const SEAT_DEMAND_SMOOTHING_COEFFICIENT: f64 = 0.977;
/// Minimum target of an allocation, to avoid divisions by zero.
const MIN_TARGET: f64 = 0.001;
/// Fraction of a level's nominal limit that one request may take at most.
const MAX_SEATS_FRACTION: f64 = 0.15;
/// Tolerance for rounding errors.
const EPSILON: f64 = 0.000_000_1;

/// Seat configuration of a PriorityLevelConfiguration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// `nominalConcurrencyShares`: the level's share of the server's seats.
    pub(crate) nominal: u32,
    /// `lendablePercent`: percentage of the level's seats that others may borrow.
    pub(crate) lendable_percent: u32,
    /// `borrowingLimitPercent`: without it, a level may borrow all seats that others lend.
    pub(crate) borrowing_limit_percent: Option<u32>,
}

/// Limits of a priority level in seats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// NominalCL: the configured share of the server's seats.
    pub(crate) nominal: usize,
    /// MinCL: the nominal limit without the lendable seats.
    pub(crate) min: usize,
    /// MaxCL: the nominal limit and all seats that the level may borrow.
    pub(crate) max: usize,
}

/// Returns the limits of a level. Nominal limits are rounded up, so their sum may slightly exceed the server's limit.
///
/// Upstream: `finishQueueSetReconfigsLocked`.
pub(crate) fn limits(shares: Shares, sum_of_shares: u64, server_limit: usize) -> Limits {
    let nominal = match sum_of_shares {
        0 => 0,
        sum => (server_limit as f64 * f64::from(shares.nominal) / sum as f64).ceil() as usize,
    };
    let percent_of_nominal =
        |percent: u32| (nominal as f64 * f64::from(percent) / 100.0).round() as usize;
    let borrowing_limit = shares.borrowing_limit_percent.map_or(server_limit, percent_of_nominal);
    Limits {
        nominal,
        min: nominal.saturating_sub(percent_of_nominal(shares.lendable_percent)),
        max: nominal + borrowing_limit,
    }
}

/// Returns the initial limit of a new level, as if half of its lendable seats were lent.
pub(crate) fn initial_limit(limits: Limits) -> usize {
    limits.nominal - (limits.nominal - limits.min) / 2
}

/// Returns the maximum number of seats for one request of a level with queues: [`MAX_SEATS_FRACTION`] of the nominal
/// limit and at most the limit divided by the hand size, but at least one seat.
pub(crate) fn max_seats(nominal: usize, hand_size: usize) -> u64 {
    let by_fraction = (nominal as f64 * MAX_SEATS_FRACTION).ceil() as u64;
    let by_hand_size = (nominal / hand_size.max(1)) as u64;
    by_fraction.min(by_hand_size).max(1)
}

/// Seat demand of a level (seats in use and seats that waiting requests need), updated at each adjustment.
///
/// Upstream: `seatDemandStats`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SeatDemand {
    /// Average since the last adjustment.
    pub(crate) average: f64,
    /// Standard deviation since the last adjustment.
    pub(crate) deviation: f64,
    /// Maximum since the last adjustment.
    pub(crate) high_watermark: usize,
    /// Average plus deviation; follows an increase immediately and a decrease slowly.
    pub(crate) smoothed: f64,
}

impl SeatDemand {
    /// Adds the observation since the last adjustment.
    pub(crate) fn update(&mut self, observation: &Observation) {
        self.high_watermark = observation.max.round() as usize;
        if observation.seconds <= 0.0 {
            return;
        }
        (self.average, self.deviation) = (observation.average, observation.deviation);
        let envelope = observation.average + observation.deviation;
        let decayed = SEAT_DEMAND_SMOOTHING_COEFFICIENT * self.smoothed
            + (1.0 - SEAT_DEMAND_SMOOTHING_COEFFICIENT) * envelope;
        self.smoothed = envelope.max(decayed);
    }
}

/// Priority level as [`borrow`] reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Borrower {
    pub(crate) exempt: bool,
    pub(crate) limits: Limits,
    pub(crate) demand: SeatDemand,
    /// Current limit, which is kept if no new limit can be computed.
    pub(crate) current: usize,
}

impl Borrower {
    /// Returns the lower bound of the next limit.
    fn min_current(&self) -> usize {
        let watermark = self.demand.high_watermark;
        let needed = if self.exempt { watermark } else { watermark.min(self.limits.nominal) };
        self.limits.min.max(needed)
    }

    /// Returns the number of seats that satisfies the level's demand.
    pub(crate) fn target(&self) -> f64 {
        (self.min_current() as f64).max(self.demand.smoothed)
    }
}

/// Returns the current limits of all levels, in their order, and the fraction of its target that each level gets.
///
/// Upstream: `updateBorrowingLocked`.
pub(crate) fn borrow(levels: &[Borrower]) -> (Vec<usize>, f64) {
    let nominal: usize = levels.iter().map(|level| level.limits.nominal).sum();
    let exempt_levels = levels.iter().filter(|level| level.exempt);
    let exempt_seats: usize = exempt_levels.map(Borrower::min_current).sum();
    let limited_levels = || levels.iter().filter(|level| !level.exempt);
    let sum_of_min: usize = limited_levels().map(|level| level.limits.min).sum();
    let sum_of_min_current: usize = limited_levels().map(Borrower::min_current).sum();
    // Negative if exempt levels use more seats than the server has.
    let remaining = nominal as i64 - exempt_seats as i64;
    let mut fair_fraction = 0.0;
    let mut allocated = Vec::new();
    if remaining > sum_of_min_current as i64 {
        let bounds: Vec<LevelBounds> = limited_levels()
            .map(|level| LevelBounds {
                lower: level.min_current() as f64,
                upper: level.limits.max as f64,
                target: level.target(),
            })
            .collect();
        match compute_concurrency_allocation(nominal as f64, &bounds) {
            Some((seats, fraction)) => (allocated, fair_fraction) = (seats, fraction),
            None => allocated = limited_levels().map(|level| level.current as f64).collect(),
        }
    }
    let mut allocated = allocated.into_iter();
    let current_limit = |level: &Borrower| {
        if level.exempt {
            return level.min_current();
        }
        // `allocated` is empty if the remaining seats do not exceed the sum of the levels' lower bounds.
        if let Some(seats) = allocated.next() {
            return seats.round() as usize;
        }
        if remaining <= sum_of_min as i64 {
            return level.limits.min;
        }
        // Give each level its minimum, and the same fraction of its distance to the lower bound.
        let missing = (sum_of_min_current - sum_of_min) as f64;
        let fraction = (remaining - sum_of_min as i64) as f64 / missing;
        level.limits.min
            + ((level.min_current() - level.limits.min) as f64 * fraction).round() as usize
    };
    (levels.iter().map(current_limit).collect(), fair_fraction)
}

/// Bounds and target of one level in an allocation.
#[derive(Debug, Clone, Copy)]
struct LevelBounds {
    lower: f64,
    upper: f64,
    target: f64,
}

/// Divides `sum` in proportion to the targets, within the bounds of each level. Returns the seats of each level and the
/// fraction of the targets that they are, or `None` if the bounds do not allow such a division.
///
/// Upstream: `computeConcurrencyAllocation`.
fn compute_concurrency_allocation(sum: f64, levels: &[LevelBounds]) -> Option<(Vec<f64>, f64)> {
    let is_invalid = |level: &LevelBounds| {
        level.lower < 0.0 || level.target < level.lower || level.upper < level.lower
    };
    let lowest: f64 = levels.iter().map(|level| level.lower).sum();
    let highest: f64 = levels.iter().map(|level| level.upper).sum();
    let is_possible = sum >= 0.0 && lowest - sum <= EPSILON && sum - highest <= EPSILON;
    if !is_possible || levels.iter().any(is_invalid) {
        return None;
    }
    let target_of = |level: &LevelBounds| level.target.max(MIN_TARGET);
    let seats_of = |fraction: f64, level: &LevelBounds| {
        (fraction * target_of(level)).clamp(level.lower, level.upper)
    };
    let total = |fraction: f64| levels.iter().map(|level| seats_of(fraction, level)).sum::<f64>();
    // The sum of all parts is piecewise linear in the fraction. It bends where a level reaches a bound.
    let mut bends: Vec<f64> = levels
        .iter()
        .flat_map(|level| [level.lower / target_of(level), level.upper / target_of(level)])
        .collect();
    bends.sort_by(f64::total_cmp);
    let mut below = *bends.first()?;
    let mut fraction = below;
    for bend in bends {
        if total(bend) < sum {
            below = bend;
            fraction = bend;
            continue;
        }
        let (low, high) = (total(below), total(bend));
        let position = if high > low { (sum - low) / (high - low) } else { 1.0 };
        fraction = below + (bend - below) * position.clamp(0.0, 1.0);
        break;
    }
    Some((levels.iter().map(|level| seats_of(fraction, level)).collect(), fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level_bounds(lower: f64, target: f64, upper: f64) -> LevelBounds {
        LevelBounds { lower, upper, target }
    }

    #[test]
    fn parts_follow_targets_within_bounds() {
        for (sum, levels, wanted) in [
            (
                10.0,
                vec![level_bounds(0.0, 1.0, 20.0), level_bounds(0.0, 4.0, 20.0)],
                vec![2.0, 8.0],
            ),
            (10.0, vec![level_bounds(0.0, 1.0, 20.0), level_bounds(0.0, 4.0, 5.0)], vec![5.0, 5.0]),
            (
                10.0,
                vec![level_bounds(4.0, 4.0, 20.0), level_bounds(0.0, 16.0, 20.0)],
                vec![4.0, 6.0],
            ),
            (10.0, vec![level_bounds(5.0, 5.0, 5.0), level_bounds(0.0, 0.0, 20.0)], vec![5.0, 5.0]),
            (10.0, vec![level_bounds(6.0, 7.0, 8.0), level_bounds(4.0, 9.0, 9.0)], vec![6.0, 4.0]),
            (0.0, vec![level_bounds(0.0, 3.0, 9.0)], vec![0.0]),
        ] {
            let (parts, _) = compute_concurrency_allocation(sum, &levels).expect("an allocation");
            for (part, want) in parts.iter().zip(&wanted) {
                assert!((part - want).abs() < 1e-6, "{parts:?} for {levels:?}");
            }
        }
        for (sum, levels) in [
            (-1.0, vec![level_bounds(0.0, 1.0, 2.0)]),
            (3.0, vec![level_bounds(0.0, 1.0, 2.0)]),
            (3.0, vec![level_bounds(4.0, 4.0, 5.0)]),
            (3.0, vec![level_bounds(4.0, 1.0, 5.0)]),
        ] {
            assert!(compute_concurrency_allocation(sum, &levels).is_none(), "{sum} {levels:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_possible_sum_is_divided(
            bounds in proptest::collection::vec((0_u32..50, 0_u32..50, 0_u32..50), 1..8),
            part in 0.0_f64..=1.0,
        ) {
            let levels: Vec<LevelBounds> = bounds
                .iter()
                .map(|(lower, more, range)| {
                    let lower = f64::from(*lower);
                    level_bounds(lower, lower + f64::from(*more), lower + f64::from(*range))
                })
                .collect();
            let lowest: f64 = levels.iter().map(|c| c.lower).sum();
            let highest: f64 = levels.iter().map(|c| c.upper).sum();
            let sum = lowest + (highest - lowest) * part;
            let (parts, _) = compute_concurrency_allocation(sum, &levels).expect("an allocation");
            proptest::prop_assert!((parts.iter().sum::<f64>() - sum).abs() < 1e-3, "{parts:?} for {sum}");
            for (part, level) in parts.iter().zip(&levels) {
                proptest::prop_assert!((level.lower..=level.upper).contains(part));
            }
        }
    }

    #[test]
    fn limits_follow_shares_and_percentages() {
        let shares = |nominal, lendable_percent| Shares {
            nominal,
            lendable_percent,
            borrowing_limit_percent: None,
        };
        // Upstream's defaults: 245 shares and 600 seats.
        let limits_for = |shares| limits(shares, 245, 600);
        assert_eq!(limits_for(shares(30, 33)), Limits { nominal: 74, min: 50, max: 674 });
        assert_eq!(limits_for(shares(100, 90)), Limits { nominal: 245, min: 24, max: 845 });
        assert_eq!(limits_for(shares(0, 0)), Limits { nominal: 0, min: 0, max: 600 });
        assert_eq!(initial_limit(limits_for(shares(100, 90))), 135);
        assert_eq!(max_seats(245, 6), 37);
        assert_eq!(max_seats(5, 8), 1);
        let none = Shares { borrowing_limit_percent: Some(50), ..shares(30, 33) };
        assert_eq!(limits_for(none).max, 111);
    }

    #[test]
    fn an_idle_level_lends_and_a_busy_one_borrows() {
        let limits = |min, nominal| Limits { nominal, min, max: 1000 };
        let level = |min, nominal, needs: usize| Borrower {
            exempt: false,
            limits: limits(min, nominal),
            demand: SeatDemand {
                high_watermark: needs,
                smoothed: needs as f64,
                ..SeatDemand::default()
            },
            current: nominal,
        };
        let (seats, _) = borrow(&[level(10, 100, 0), level(10, 100, 150)]);
        // Each part is rounded.
        assert_eq!(seats, [13, 188]);
        // Exempt levels do not lend the seats that they use.
        let exempt = Borrower { exempt: true, ..level(0, 0, 190) };
        let (seats, _) = borrow(&[level(10, 100, 100), level(10, 100, 100), exempt]);
        assert_eq!(seats, [10, 10, 190]);
        let exempt = Borrower { exempt: true, ..level(0, 0, 120) };
        let (seats, _) = borrow(&[level(10, 100, 100), level(10, 100, 100), exempt]);
        assert_eq!(seats, [40, 40, 120]);
    }

    #[test]
    fn demand_rises_at_once_and_falls_slowly() {
        let observation =
            |average, max| Observation { seconds: 10.0, average, deviation: 0.0, max };
        let mut demand = SeatDemand::default();
        demand.update(&observation(100.0, 120.0));
        assert_eq!((demand.smoothed.round(), demand.high_watermark), (100.0, 120));
        for _ in 0..30 {
            demand.update(&observation(0.0, 0.0));
        }
        assert!((45.0..55.0).contains(&demand.smoothed), "{demand:?}");
    }
}
