//! CIDR set: a CIDR divided into equal parts. Upstream: `cidrset/cidr_set.go`.

use super::config::Family;
use evenkeel_api::cidr::{Cidr, from_number, number};
use std::ops::RangeInclusive;

/// Maximum number of bits by which the prefix of a part is longer than that of the set, for IPv6. It limits the size of
/// the bitmap. Upstream: `clusterSubnetMaxDiff`.
const MAX_IPV6_LENGTH_DIFFERENCE: u8 = 16;

/// Number of parts in one word of the bitmap.
const WORD_BITS: usize = u64::BITS as usize;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CidrSetError {
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
    TooManyParts {
        /// CIDR of the set.
        range: Cidr,
        /// Prefix length of the parts.
        length: u8,
    },
}

/// A free part of a CIDR set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreePart {
    pub(crate) cidr: Cidr,
    /// Number of parts before it that were tried and already allocated.
    pub(crate) tries: usize,
}

/// A CIDR set. Upstream: `CidrSet`.
#[derive(Debug)]
pub(crate) struct CidrSet {
    range: Cidr,
    /// Prefix length of the parts.
    length: u8,
    /// Bitmap of allocated parts, up to the highest ever allocated.
    used: Vec<u64>,
    /// Number of allocated parts.
    allocated_parts: usize,
    /// Index at which the search continues. Upstream: `nextCandidate`.
    next: usize,
    /// Number of allocations so far.
    pub(crate) allocations_total: u64,
    /// Number of releases so far.
    pub(crate) releases_total: u64,
}

impl CidrSet {
    /// Builds a set without allocations.
    pub(crate) fn new(family: Family) -> Result<Self, CidrSetError> {
        let Family { range, node_length: length } = family;
        let index_bits = length.saturating_sub(range.length());
        let exceeds_bitmap = index_bits > MAX_IPV6_LENGTH_DIFFERENCE && !range.is_ipv4();
        if exceeds_bitmap || u32::from(index_bits) >= usize::BITS {
            return Err(CidrSetError::TooManyParts { range, length });
        }
        Ok(Self {
            range,
            length,
            used: Vec::new(),
            allocated_parts: 0,
            next: 0,
            allocations_total: 0,
            releases_total: 0,
        })
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
    pub(crate) fn allocated_parts(&self) -> usize {
        self.allocated_parts
    }

    /// Returns the next free part.
    pub(crate) fn next_free(&self) -> Option<FreePart> {
        let size = self.size();
        if self.allocated_parts == size {
            return None;
        }
        let tries = (0..size).find(|tries| !self.is_used((self.next + tries) % size))?;
        Some(FreePart { cidr: self.part((self.next + tries) % size), tries })
    }

    /// Allocates the next free part, and returns it. Upstream: `AllocateNext`.
    pub(crate) fn allocate_next(&mut self) -> Option<FreePart> {
        let part = self.next_free()?;
        self.allocate(&part.cidr);
        Some(part)
    }

    /// Allocates a free part. The next search begins after it.
    pub(crate) fn allocate(&mut self, part: &Cidr) {
        let index = self.index_of(number(part.first()));
        self.next = (index + 1) % self.size();
        self.mark_used(index);
    }

    /// Checks that the CIDR overlaps the set.
    pub(crate) fn check_overlap(&self, cidr: &Cidr) -> Result<(), CidrSetError> {
        self.overlapping_parts(cidr).map(drop)
    }

    /// Allocates all parts that overlap the CIDR. Upstream: `Occupy`.
    pub(crate) fn occupy(&mut self, cidr: &Cidr) -> Result<(), CidrSetError> {
        self.overlapping_parts(cidr)?.for_each(|index| self.mark_used(index));
        Ok(())
    }

    /// Releases all parts that overlap the CIDR. Upstream: `Release`.
    pub(crate) fn release(&mut self, cidr: &Cidr) -> Result<(), CidrSetError> {
        self.overlapping_parts(cidr)?.for_each(|index| self.mark_free(index));
        Ok(())
    }

    /// Returns whether the part with this index is allocated.
    fn is_used(&self, index: usize) -> bool {
        self.used.get(index / WORD_BITS).is_some_and(|word| word >> (index % WORD_BITS) & 1 == 1)
    }

    /// Marks the part with this index as allocated.
    fn mark_used(&mut self, index: usize) {
        if self.is_used(index) {
            return;
        }
        if self.used.len() <= index / WORD_BITS {
            self.used.resize(index / WORD_BITS + 1, 0);
        }
        self.used[index / WORD_BITS] |= 1 << (index % WORD_BITS);
        self.allocated_parts += 1;
        self.allocations_total += 1;
    }

    /// Marks the part with this index as free.
    fn mark_free(&mut self, index: usize) {
        if !self.is_used(index) {
            return;
        }
        self.used[index / WORD_BITS] &= !(1 << (index % WORD_BITS));
        self.allocated_parts -= 1;
        self.releases_total += 1;
    }

    /// Returns the indexes of the parts that overlap the CIDR.
    fn overlapping_parts(&self, cidr: &Cidr) -> Result<RangeInclusive<usize>, CidrSetError> {
        if !self.range.overlaps(cidr) {
            return Err(CidrSetError::Outside { cidr: *cidr, range: self.range });
        }
        if cidr.length() <= self.range.length() {
            return Ok(0..=self.size() - 1);
        }
        Ok(self.index_of(number(cidr.first()))..=self.index_of(number(cidr.last())))
    }

    /// Returns the index of the part that contains `address`, which must lie in the set.
    fn index_of(&self, address: u128) -> usize {
        let distance = address - number(self.range.first());
        // The address is in the set, so the index fits.
        usize::try_from(distance.checked_shr(self.host_bits()).unwrap_or(0)).unwrap_or(usize::MAX)
    }

    /// Returns the CIDR of the part with this index.
    fn part(&self, index: usize) -> Cidr {
        let distance = (index as u128).checked_shl(self.host_bits()).unwrap_or(0);
        let first = from_number(number(self.range.first()) + distance, self.range.is_ipv4());
        Cidr::new(first, self.length)
    }

    /// Returns the number of address bits after the prefix of a part.
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

    fn set(range: &str, node_length: u8) -> CidrSet {
        CidrSet::new(Family { range: cidr(range), node_length }).unwrap()
    }

    /// Allocates this many CIDRs; `none` if all are allocated.
    fn allocate(set: &mut CidrSet, count: usize) -> Vec<String> {
        let parts = std::iter::repeat_with(|| set.allocate_next()).take(count);
        parts.map(|part| part.map_or("none".into(), |part| part.cidr.to_string())).collect()
    }

    #[test]
    fn cidrs_are_allocated_in_turn() {
        let mut v4 = set("10.1.0.0/22", 24);
        assert_eq!(
            allocate(&mut v4, 5),
            ["10.1.0.0/24", "10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24", "none"]
        );
        v4.release(&cidr("10.1.0.0/24")).unwrap();
        v4.release(&cidr("10.1.2.0/24")).unwrap();
        // The search continues after the last allocated part, then wraps around.
        assert_eq!(allocate(&mut v4, 3), ["10.1.0.0/24", "10.1.2.0/24", "none"]);
        assert_eq!((v4.allocations_total, v4.releases_total, v4.allocated_parts()), (6, 2, 4));
        let mut v6 = set("fd00:10:244::/62", 64);
        assert_eq!(allocate(&mut v6, 2), ["fd00:10:244::/64", "fd00:10:244:1::/64"]);
        let mut fine = set("fd00::/112", 120);
        fine.occupy(&cidr("fd00::/120")).unwrap();
        assert_eq!(allocate(&mut fine, 1), ["fd00::100/120"]);
        assert_eq!(allocate(&mut set("10.0.0.0/24", 24), 2), ["10.0.0.0/24", "none"]);
    }

    #[test]
    fn occupied_cidrs_are_not_allocated() {
        let mut set = set("10.0.0.0/20", 24);
        set.occupy(&cidr("10.0.1.128/25")).unwrap();
        set.occupy(&cidr("10.0.2.0/23")).unwrap();
        set.occupy(&cidr("10.0.2.0/24")).unwrap();
        assert_eq!(set.allocated_parts(), 3, "none is counted twice");
        assert_eq!(allocate(&mut set, 2), ["10.0.0.0/24", "10.0.4.0/24"]);
        set.occupy(&cidr("10.0.0.0/8")).unwrap();
        assert_eq!((set.allocated_parts(), set.size()), (16, 16));
        assert!(
            set.occupy(&cidr("11.0.0.0/24")).is_err() && set.release(&cidr("fd00::/64")).is_err()
        );
        let fine = CidrSet::new(Family { range: cidr("fd00::/40"), node_length: 64 });
        assert!(matches!(fine, Err(CidrSetError::TooManyParts { .. })));
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
                    None => match set.allocate_next() {
                        Some(part) => prop_assert!(held.insert(part.cidr.to_string())),
                        None => prop_assert_eq!(held.len(), 16),
                    },
                }
                prop_assert_eq!(set.allocated_parts(), held.len());
            }
        }
    }
}
