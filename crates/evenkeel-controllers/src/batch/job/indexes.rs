//! Sets of completion indexes, as intervals: `0,2-5`. Upstream: `indexed_job_utils.go`.

use std::fmt;

/// A set of indexes, as sorted intervals. Upstream: `orderedIntervals`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Parses indexes in the status. Drops indexes that are not below `completions`, because an elastic Job may have
    /// shrunk. Skips invalid text. Upstream: `parseIndexesFromString`.
    pub(super) fn parse(text: &str, completions: u32) -> Self {
        let mut intervals = Self::default();
        for interval in text.split(',').filter(|interval| !interval.is_empty()) {
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
                continue;
            };
            if first >= completions {
                break;
            }
            intervals.append(first, last.min(completions - 1));
        }
        intervals
    }

    /// Returns the number of indexes.
    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// Whether the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains the index.
    pub(super) fn has(&self, index: u32) -> bool {
        let position = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(position).is_some_and(|(first, _)| *first <= index)
    }

    /// Returns the union with single indexes. Upstream: `withOrderedIndexes`.
    #[must_use]
    pub(super) fn with(&self, others: impl IntoIterator<Item = u32>) -> Self {
        let mut intervals: Vec<(u32, u32)> =
            others.into_iter().map(|index| (index, index)).collect();
        intervals.extend(&self.0);
        Self::of_intervals(intervals)
    }

    /// Returns the union. Upstream: `merge`.
    #[must_use]
    pub(super) fn union(&self, others: &Self) -> Self {
        Self::of_intervals(self.0.iter().chain(&others.0).copied().collect())
    }

    /// Returns the size of the intersection.
    pub(super) fn overlap(&self, others: &Self) -> usize {
        let overlap_with_others = |(a, b): (u32, u32)| {
            let common = others.0.iter().filter_map(move |(first, last)| {
                b.min(*last).checked_sub(a.max(*first)).map(|length| length as usize + 1)
            });
            common.sum::<usize>()
        };
        self.0.iter().copied().map(overlap_with_others).sum()
    }

    /// Returns the first `count` indexes below `completions` that the set lacks.
    pub(super) fn missing(&self, count: usize, completions: u32) -> Vec<u32> {
        let mut found = Vec::with_capacity(count.min(completions as usize));
        let mut next = 0;
        let end = (completions, completions);
        for (first, last) in self.0.iter().copied().chain([end]) {
            let room = count - found.len();
            found.extend((next..first.min(completions)).take(room));
            next = last.saturating_add(1);
        }
        found
    }

    fn of_intervals(mut intervals: Vec<(u32, u32)>) -> Self {
        intervals.sort_unstable();
        let mut merged = Self::default();
        intervals.into_iter().for_each(|(first, last)| merged.append(first, last));
        merged
    }

    /// Appends an interval that starts no earlier than the last one.
    fn append(&mut self, first: u32, last: u32) {
        match self.0.last_mut() {
            Some(interval) if first <= interval.1.saturating_add(1) => {
                interval.1 = interval.1.max(last);
            }
            _ if first <= last => self.0.push((first, last)),
            _ => {}
        }
    }
}

impl fmt::Display for Indexes {
    /// Formats in ascending order; three or more consecutive indexes as `a-b`. Upstream: `String`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
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
            let of = |set: &BTreeSet<u32>| Indexes::default().with(set.iter().copied());
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.total(), a.len());
            prop_assert!((0..40).all(|index| x.has(index) == a.contains(&index)));
            prop_assert_eq!(Indexes::parse(&x.to_string(), 40), x.clone());
            prop_assert_eq!(x.union(&y), of(&a.union(&b).copied().collect()));
            prop_assert_eq!(x.overlap(&y), a.intersection(&b).count());
            let missing: Vec<u32> = (0..40).filter(|index| !a.contains(index)).collect();
            prop_assert_eq!(x.missing(40, 40), missing);
        }
    }
}
