//! CIDR set: a CIDR divided into equal parts. Upstream: `cidrset/cidr_set.go`.

use super::config::Family;
use evenkeel_api::cidr::{Cidr, from_number, number};
use std::ops::RangeInclusive;

/// Maximum difference between the prefix lengths of a node and of the set, for IPv6: each part takes a bit of memory.
/// Upstream: `clusterSubnetMaxDiff`.
const MAX_IPV6_PART_BITS: u8 = 16;

/// Error of a CIDR set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// The CIDR is outside the set.
    #[error("cidr {cidr} is out the range of cluster cidr {range}")]
    Outside {
        /// The CIDR in question.
        cidr: Cidr,
        /// CIDR of the set.
        range: Cidr,
    },
    /// The set has too many parts.
    #[error("the prefix of a node, {length} bits, is too much longer than that of {range}")]
    TooFine {
        /// CIDR of the set.
        range: Cidr,
        /// Prefix length of the parts.
        length: u8,
    },
}

/// A CIDR set. Upstream: `CidrSet`.
#[derive(Debug)]
pub(crate) struct Set {
    range: Cidr,
    length: u8,
    /// Bitmap of allocated parts, up to the highest ever allocated.
    used: Vec<u64>,
    taken: usize,
    /// Index at which the search continues. Upstream: `nextCandidate`.
    next: usize,
    /// Number of allocations so far.
    pub(crate) allocated: u64,
    /// Number of releases so far.
    pub(crate) released: u64,
}

impl Set {
    /// Builds a set without allocations.
    pub(crate) fn new(family: Family) -> Result<Self, Problem> {
        let Family { range, node_length: length } = family;
        let bits = length.saturating_sub(range.length());
        if bits > MAX_IPV6_PART_BITS && !range.is_ipv4() || u32::from(bits) >= usize::BITS {
            return Err(Problem::TooFine { range, length });
        }
        Ok(Self { range, length, used: Vec::new(), taken: 0, next: 0, allocated: 0, released: 0 })
    }

    /// Returns the CIDR of the set.
    pub(crate) fn range(&self) -> Cidr {
        self.range
    }

    /// Returns the number of parts.
    pub(crate) fn size(&self) -> usize {
        1 << self.length.saturating_sub(self.range.length())
    }

    /// Returns the number of allocated parts.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Returns the next free part, and the number of parts tried before it.
    pub(crate) fn next_free(&self) -> Option<(Cidr, usize)> {
        let size = self.size();
        if self.taken == size {
            return None;
        }
        let tries = (0..size).find(|tries| !self.is_used((self.next + tries) % size))?;
        Some((self.part((self.next + tries) % size), tries))
    }

    /// Allocates the next free part, and returns the number of parts tried before it. Upstream: `AllocateNext`.
    pub(crate) fn take_next(&mut self) -> Option<(Cidr, usize)> {
        let (part, tries) = self.next_free()?;
        self.take(&part);
        Some((part, tries))
    }

    /// Allocates a free part; the search continues after it.
    pub(crate) fn take(&mut self, part: &Cidr) {
        let index = self.index(number(part.first()));
        self.next = (index + 1) % self.size();
        self.set_used(index, true);
    }

    /// Checks that the CIDR overlaps the set.
    pub(crate) fn check(&self, cidr: &Cidr) -> Result<(), Problem> {
        self.parts_in(cidr).map(drop)
    }

    /// Allocates all parts that overlap the CIDR. Upstream: `Occupy`.
    pub(crate) fn occupy(&mut self, cidr: &Cidr) -> Result<(), Problem> {
        self.parts_in(cidr)?.for_each(|index| self.set_used(index, true));
        Ok(())
    }

    /// Releases all parts that overlap the CIDR. Upstream: `Release`.
    pub(crate) fn release(&mut self, cidr: &Cidr) -> Result<(), Problem> {
        self.parts_in(cidr)?.for_each(|index| self.set_used(index, false));
        Ok(())
    }

    fn is_used(&self, index: usize) -> bool {
        self.used.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn set_used(&mut self, index: usize, used: bool) {
        if self.is_used(index) == used {
            return;
        }
        if self.used.len() <= index / 64 {
            self.used.resize(index / 64 + 1, 0);
        }
        self.used[index / 64] ^= 1 << (index % 64);
        if used {
            self.taken += 1;
            self.allocated += 1;
        } else {
            self.taken -= 1;
            self.released += 1;
        }
    }

    fn parts_in(&self, cidr: &Cidr) -> Result<RangeInclusive<usize>, Problem> {
        if !self.range.overlaps(cidr) {
            return Err(Problem::Outside { cidr: *cidr, range: self.range });
        }
        if cidr.length() <= self.range.length() {
            return Ok(0..=self.size() - 1);
        }
        Ok(self.index(number(cidr.first()))..=self.index(number(cidr.last())))
    }

    /// Returns the index of the part that contains `address`, which must lie in the set.
    fn index(&self, address: u128) -> usize {
        let distance = address - number(self.range.first());
        // The address is in the set, so the index fits.
        usize::try_from(distance.checked_shr(self.host_bits()).unwrap_or(0)).unwrap_or(usize::MAX)
    }

    fn part(&self, index: usize) -> Cidr {
        let distance = (index as u128).checked_shl(self.host_bits()).unwrap_or(0);
        let first = from_number(number(self.range.first()) + distance, self.range.is_ipv4());
        Cidr::new(first, self.length)
    }

    fn host_bits(&self) -> u32 {
        let bits = if self.range.is_ipv4() { 32 } else { 128 };
        bits - u32::from(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).unwrap()
    }

    fn set(range: &str, node_length: u8) -> Set {
        Set::new(Family { range: cidr(range), node_length }).unwrap()
    }

    /// Allocates this many CIDRs; `none` if all are allocated.
    fn take(set: &mut Set, count: usize) -> Vec<String> {
        let parts = std::iter::repeat_with(|| set.take_next()).take(count);
        parts.map(|part| part.map_or("none".into(), |(part, _)| part.to_string())).collect()
    }

    #[test]
    fn cidrs_are_allocated_in_turn() {
        let mut v4 = set("10.1.0.0/22", 24);
        assert_eq!(
            take(&mut v4, 5),
            ["10.1.0.0/24", "10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24", "none"]
        );
        v4.release(&cidr("10.1.0.0/24")).unwrap();
        v4.release(&cidr("10.1.2.0/24")).unwrap();
        // The search continues after the last allocated part, then wraps around.
        assert_eq!(take(&mut v4, 3), ["10.1.0.0/24", "10.1.2.0/24", "none"]);
        assert_eq!((v4.allocated, v4.released, v4.taken()), (6, 2, 4));
        let mut v6 = set("fd00:10:244::/62", 64);
        assert_eq!(take(&mut v6, 2), ["fd00:10:244::/64", "fd00:10:244:1::/64"]);
        let mut fine = set("fd00::/112", 120);
        fine.occupy(&cidr("fd00::/120")).unwrap();
        assert_eq!(take(&mut fine, 1), ["fd00::100/120"]);
        assert_eq!(take(&mut set("10.0.0.0/24", 24), 2), ["10.0.0.0/24", "none"]);
    }

    #[test]
    fn occupied_cidrs_are_not_allocated() {
        let mut set = set("10.0.0.0/20", 24);
        set.occupy(&cidr("10.0.1.128/25")).unwrap();
        set.occupy(&cidr("10.0.2.0/23")).unwrap();
        set.occupy(&cidr("10.0.2.0/24")).unwrap();
        assert_eq!(set.taken(), 3, "none is counted twice");
        assert_eq!(take(&mut set, 2), ["10.0.0.0/24", "10.0.4.0/24"]);
        set.occupy(&cidr("10.0.0.0/8")).unwrap();
        assert_eq!((set.taken(), set.size()), (16, 16));
        assert!(
            set.occupy(&cidr("11.0.0.0/24")).is_err() && set.release(&cidr("fd00::/64")).is_err()
        );
        let fine = Set::new(Family { range: cidr("fd00::/40"), node_length: 64 });
        assert!(matches!(fine, Err(Problem::TooFine { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn no_cidr_is_allocated_twice(steps in proptest::collection::vec(proptest::option::of(0usize..16), 1..80)) {
            let mut set = set("10.0.0.0/20", 24);
            let mut held: BTreeSet<String> = BTreeSet::new();
            for step in steps {
                match step.and_then(|index| held.iter().nth(index).cloned()) {
                    Some(part) => {
                        set.release(&cidr(&part)).unwrap();
                        held.remove(&part);
                    }
                    None => match set.take_next() {
                        Some((part, _)) => prop_assert!(held.insert(part.to_string())),
                        None => prop_assert_eq!(held.len(), 16),
                    },
                }
                prop_assert_eq!(set.taken(), held.len());
            }
        }
    }
}
