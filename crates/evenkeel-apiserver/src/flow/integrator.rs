//! Statistics of a number over time: average, deviation, maximum and time-weighted histograms.

use std::time::Duration;

/// Integrates a number over time.
///
/// Upstream: `Integrator`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Integrator {
    /// Time up to which the fields below include the value.
    integrated_until: Duration,
    value: f64,
    /// Length of the current period.
    seconds: f64,
    integral: f64,
    integral_of_squares: f64,
    max: f64,
}

/// Result of an [`Integrator`] over a period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Observation {
    /// Length of the period in seconds.
    pub(crate) seconds: f64,
    /// Average of the value, weighted by time.
    pub(crate) average: f64,
    /// Standard deviation of the value, weighted by time.
    pub(crate) deviation: f64,
    /// Maximum value in the period.
    pub(crate) max: f64,
}

impl Integrator {
    /// Sets the value that holds from `now` on.
    pub(super) fn set(&mut self, now: Duration, value: f64) {
        self.advance(now);
        self.value = value;
        self.max = self.max.max(value);
    }

    /// Returns the observation of the period that ends at `now`, and begins a new period.
    pub(super) fn reset(&mut self, now: Duration) -> Observation {
        self.advance(now);
        let mut observation =
            Observation { seconds: self.seconds, max: self.max, ..Observation::default() };
        if self.seconds > 0.0 {
            let average = self.integral / self.seconds;
            let variance = self.integral_of_squares / self.seconds - average * average;
            observation.average = average;
            // Rounding errors can make the variance of a constant value negative.
            observation.deviation = variance.max(0.0).sqrt();
        }
        *self = Self {
            integrated_until: self.integrated_until,
            value: self.value,
            max: self.value,
            ..Self::default()
        };
        observation
    }

    /// Adds the current value for the time until `now`.
    fn advance(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.integrated_until).as_secs_f64();
        self.integrated_until = self.integrated_until.max(now);
        self.seconds += seconds;
        self.integral += self.value * seconds;
        self.integral_of_squares += self.value * self.value * seconds;
    }
}

/// Contents of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HistogramReading {
    /// Upper bounds with their cumulative counts, without the bucket `+Inf`.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl HistogramReading {
    /// Creates a reading from the count of each bucket. The last count has no upper bound.
    fn new(bounds: &[f64], counts: &[u64], sum: f64) -> Self {
        let mut cumulative_count = 0;
        let mut buckets = Vec::with_capacity(bounds.len());
        for (bound, count) in bounds.iter().zip(counts) {
            cumulative_count += count;
            buckets.push((*bound, cumulative_count));
        }
        Self { buckets, count: counts.iter().sum(), sum }
    }
}

/// Histogram of a ratio over time. The weight of a value is its duration in nanoseconds.
///
/// Upstream: `TimingRatioHistogram`.
#[derive(Debug, Clone)]
pub(super) struct TimingHistogram {
    bounds: &'static [f64],
    /// Nanoseconds by bucket; the last bucket has no upper bound.
    nanoseconds: Vec<u64>,
    /// Sum of all ratios, each multiplied by its nanoseconds.
    sum: f64,
    /// Time up to which the buckets include the ratio.
    observed_until: Duration,
    numerator: f64,
    denominator: f64,
}

impl TimingHistogram {
    /// Creates a histogram whose ratio is 0 from `now` on.
    pub(super) fn new(bounds: &'static [f64], now: Duration) -> Self {
        let nanoseconds = vec![0; bounds.len() + 1];
        Self {
            bounds,
            nanoseconds,
            sum: 0.0,
            observed_until: now,
            numerator: 0.0,
            denominator: 1.0,
        }
    }

    /// Sets the numerator from `now` on.
    pub(super) fn set(&mut self, now: Duration, numerator: f64) {
        self.advance(now);
        self.numerator = numerator;
    }

    /// Sets the denominator from `now` on.
    pub(super) fn set_denominator(&mut self, now: Duration, denominator: f64) {
        self.advance(now);
        self.denominator = denominator;
    }

    /// Returns the contents up to `now`.
    pub(super) fn read(&mut self, now: Duration) -> HistogramReading {
        self.advance(now);
        HistogramReading::new(self.bounds, &self.nanoseconds, self.sum)
    }

    /// Adds the current ratio for the time until `now`.
    fn advance(&mut self, now: Duration) {
        let nanoseconds = now.saturating_sub(self.observed_until).as_nanos() as u64;
        self.observed_until = self.observed_until.max(now);
        let ratio = self.numerator / self.denominator;
        let bucket = self.bounds.iter().take_while(|bound| ratio > **bound).count();
        if let Some(bucket) = self.nanoseconds.get_mut(bucket) {
            *bucket += nanoseconds;
        }
        self.sum += ratio * nanoseconds as f64;
    }
}

/// Histogram of single values.
#[derive(Debug, Clone)]
pub(super) struct Distribution {
    bounds: &'static [f64],
    /// Values by bucket; the last bucket has no upper bound.
    counts: Vec<u64>,
    sum: f64,
}

impl Distribution {
    /// Creates an empty histogram.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts a value.
    pub(super) fn observe(&mut self, value: f64) {
        let bucket = self.bounds.iter().take_while(|bound| value > **bound).count();
        if let Some(bucket) = self.counts.get_mut(bucket) {
            *bucket += 1;
        }
        self.sum += value;
    }

    /// Returns the contents.
    pub(super) fn read(&self) -> HistogramReading {
        HistogramReading::new(self.bounds, &self.counts, self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn numbers_are_weighted_by_time() {
        let mut seats = Integrator::default();
        seats.set(secs(0), 4.0);
        seats.set(secs(2), 10.0);
        seats.set(secs(3), 0.0);
        let seen = seats.reset(secs(8));
        assert_eq!((seen.seconds, seen.max), (8.0, 10.0));
        assert!((seen.average - 18.0 / 8.0).abs() < 1e-9, "{seen:?}");
        assert!((seen.deviation - (132.0_f64 / 8.0 - 2.25 * 2.25).sqrt()).abs() < 1e-9, "{seen:?}");
        // The next observation begins with the current value.
        assert_eq!(seats.reset(secs(9)), Observation { seconds: 1.0, ..Observation::default() });
    }

    #[test]
    fn a_ratio_counts_once_per_nanosecond() {
        let mut seat_use = TimingHistogram::new(&[0.0, 0.5, 1.0], secs(0));
        seat_use.set_denominator(secs(0), 10.0);
        seat_use.set(secs(1), 5.0);
        seat_use.set(secs(3), 20.0);
        let HistogramReading { buckets, count, sum } = seat_use.read(secs(4));
        assert_eq!(buckets, [(0.0, 1_000_000_000), (0.5, 3_000_000_000), (1.0, 3_000_000_000)]);
        assert_eq!((count, sum), (4_000_000_000, 3e9));
    }

    #[test]
    fn a_value_counts_in_the_bucket_with_the_next_upper_bound() {
        let mut waits = Distribution::new(&[0.0, 1.0]);
        [0.0, 0.5, 1.0, 2.0].into_iter().for_each(|value| waits.observe(value));
        let wanted = HistogramReading { buckets: vec![(0.0, 1), (1.0, 3)], count: 4, sum: 3.5 };
        assert_eq!(waits.read(), wanted);
    }
}
