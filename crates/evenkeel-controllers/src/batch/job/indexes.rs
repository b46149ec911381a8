//! Sets of completion indexes, as intervals: `0,2-5`. Upstream: `indexed_job_utils.go`.

use std::fmt;

/// A set of indexes: sorted intervals that neither overlap nor touch. Upstream: `orderedIntervals`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<Interval>);

/// Consecutive indexes. Upstream: `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    first: u32,
    last: u32,
}

impl Interval {
    /// Returns the number of indexes in the interval.
    fn length(self) -> usize {
        (self.last - self.first) as usize + 1
    }

    /// Returns the number of indexes that both intervals contain.
    fn overlap(self, other: Self) -> usize {
        let first = self.first.max(other.first);
        let last = self.last.min(other.last);
        if first <= last { Self { first, last }.length() } else { 0 }
    }
}

impl Indexes {
    /// Parses indexes in the status. Drops indexes that are not below `completions`, because an elastic Job may have shrunk.
    /// Skips invalid parts. Upstream: `parseIndexesFromString`.
    pub(super) fn parse(text: &str, completions: u32) -> Self {
        let mut indexes = Self::default();
        for interval in text.split(',').filter(|interval| !interval.is_empty()) {
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
                continue;
            };
            if first >= completions {
                break;
            }
            indexes.append(Interval { first, last: last.min(completions - 1) });
        }
        indexes
    }

    /// Returns the number of indexes.
    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|interval| interval.length()).sum()
    }

    /// Returns whether the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the set contains the index.
    pub(super) fn contains(&self, index: u32) -> bool {
        let position = self.0.partition_point(|interval| interval.last < index);
        self.0.get(position).is_some_and(|interval| interval.first <= index)
    }

    /// Returns the union with single indexes. Upstream: `withOrderedIndexes`.
    #[must_use]
    pub(super) fn with(&self, others: impl IntoIterator<Item = u32>) -> Self {
        let mut intervals: Vec<Interval> =
            others.into_iter().map(|index| Interval { first: index, last: index }).collect();
        intervals.extend(&self.0);
        Self::of_intervals(intervals)
    }

    /// Returns the union. Upstream: `merge`.
    #[must_use]
    pub(super) fn union(&self, others: &Self) -> Self {
        Self::of_intervals(self.0.iter().chain(&others.0).copied().collect())
    }

    /// Returns the number of indexes that both sets contain.
    pub(super) fn overlap(&self, others: &Self) -> usize {
        let mut total = 0;
        for interval in &self.0 {
            total += others.0.iter().map(|other| interval.overlap(*other)).sum::<usize>();
        }
        total
    }

    /// Returns the first `count` indexes below `completions` that the set lacks.
    pub(super) fn missing(&self, count: usize, completions: u32) -> Vec<u32> {
        let mut missing = Vec::with_capacity(count.min(completions as usize));
        let mut next = 0;
        for interval in &self.0 {
            let gap = next..interval.first.min(completions);
            missing.extend(gap.take(count - missing.len()));
            next = interval.last.saturating_add(1);
        }
        missing.extend((next..completions).take(count - missing.len()));
        missing
    }

    /// Returns the indexes of these intervals, which may overlap.
    fn of_intervals(mut intervals: Vec<Interval>) -> Self {
        intervals.sort_unstable();
        let mut merged = Self::default();
        intervals.into_iter().for_each(|interval| merged.append(interval));
        merged
    }

    /// Appends an interval that starts no earlier than the last one. Ignores an interval that ends before it starts.
    fn append(&mut self, interval: Interval) {
        match self.0.last_mut() {
            Some(end) if interval.first <= end.last.saturating_add(1) => {
                end.last = end.last.max(interval.last);
            }
            _ if interval.first <= interval.last => self.0.push(interval),
            _ => {}
        }
    }
}

impl fmt::Display for Indexes {
    /// Formats the indexes in ascending order, and three or more consecutive ones as `a-b`. Upstream: `String`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Interval { first, last }) in self.0.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn intervals_are_parsed_and_formatted() {
        for (text, completions, expected, total) in [
            ("", 5, "", 0),
            ("0", 5, "0", 1),
            ("0,1", 5, "0,1", 2),
            ("0-2,4", 5, "0-2,4", 4),
            ("0,1,2", 5, "0-2", 3),
            ("0-2,4", 3, "0-2", 3),
            ("1-9", 3, "1,2", 2),
            ("7,8", 3, "", 0),
            ("a,1,2-b,3", 5, "1,3", 2),
        ] {
            let indexes = Indexes::parse(text, completions);
            assert_eq!(
                (indexes.to_string().as_str(), indexes.total()),
                (expected, total),
                "{text}"
            );
        }
    }

    #[test]
    fn missing_indexes_are_in_order() {
        let done = Indexes::parse("1,3-4", 8);
        assert_eq!(done.missing(3, 8), [0, 2, 5]);
        assert_eq!(done.missing(9, 8), [0, 2, 5, 6, 7]);
        assert_eq!(Indexes::default().missing(2, 1), [0]);
        assert_eq!(done.missing(0, 8), Vec::<u32>::new());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn indexes_behave_as_a_set(a in prop::collection::btree_set(0u32..40, 0..20), b in prop::collection::btree_set(0u32..40, 0..20)) {
            let indexes_of = |set: &BTreeSet<u32>| Indexes::default().with(set.iter().copied());
            let (x, y) = (indexes_of(&a), indexes_of(&b));
            prop_assert_eq!(x.total(), a.len());
            prop_assert!((0..40).all(|index| x.contains(index) == a.contains(&index)));
            prop_assert_eq!(Indexes::parse(&x.to_string(), 40), x.clone());
            prop_assert_eq!(x.union(&y), indexes_of(&a.union(&b).copied().collect()));
            prop_assert_eq!(x.overlap(&y), a.intersection(&b).count());
            let missing: Vec<u32> = (0..40).filter(|index| !a.contains(index)).collect();
            prop_assert_eq!(x.missing(40, 40), missing);
        }
    }
}
