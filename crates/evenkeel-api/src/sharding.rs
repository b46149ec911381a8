//! Shard selectors of lists and watches. They select objects whose hash of one metadata field is in given ranges
//! (KEP-5866).
//!
//! ```
//! use evenkeel_api::sharding::{ShardField, ShardRange, ShardSelector};
//! let half = ShardRange::new(0, 1 << 63).unwrap();
//! let selector = ShardSelector::new(ShardField::Namespace, vec![half]);
//! assert_eq!(
//!     selector.to_string(),
//!     "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')"
//! );
//! assert!(!selector.matches("default"));
//! ```
//!
//! Upstream: `apimachinery/pkg/sharding`.

use std::fmt;

/// Number of hashes, and the greatest end of a range.
pub const HASH_SPACE: u128 = 1 << 64;

/// Returns the 64-bit FNV-1a hash that shard selectors divide objects by.
///
/// Upstream: `HashField`.
pub fn hash_field(value: &str) -> u64 {
    value.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Metadata field whose hash a shard selector compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShardField {
    /// `object.metadata.uid`, which differs between objects of the same name.
    Uid,
    /// `object.metadata.namespace`. It is empty for a cluster-scoped object.
    Namespace,
}

impl ShardField {
    /// Returns the field's path in a shard selector.
    pub fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }

    /// Returns the field with a path, or `None` for a path that shard selectors do not support.
    ///
    /// Upstream: `ResolveFieldValue`.
    pub fn of_path(path: &str) -> Option<Self> {
        [Self::Uid, Self::Namespace].into_iter().find(|field| field.path() == path)
    }
}

/// Range of hashes that is not empty.
///
/// Upstream: `ShardRangeRequirement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardRange {
    first: u64,
    last: u64,
}

impl ShardRange {
    /// Creates the range from `start` (inclusive) to `end` (exclusive). Returns `None` if it is empty, or `end` is
    /// greater than [`HASH_SPACE`].
    pub fn new(start: u128, end: u128) -> Option<Self> {
        if start >= end {
            return None;
        }
        Some(Self { first: u64::try_from(start).ok()?, last: u64::try_from(end - 1).ok()? })
    }

    /// Returns whether the range contains a hash.
    pub fn contains(self, hash: u64) -> bool {
        (self.first..=self.last).contains(&hash)
    }
}

/// Selector of the objects whose hash of a field is in one of several ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardSelector {
    field: ShardField,
    ranges: Vec<ShardRange>,
}

impl ShardSelector {
    /// Creates a selector. Without ranges, it selects nothing, and no server accepts its string.
    pub fn new(field: ShardField, ranges: Vec<ShardRange>) -> Self {
        Self { field, ranges }
    }

    /// Returns the field whose hash counts.
    pub fn field(&self) -> ShardField {
        self.field
    }

    /// Returns the ranges, in the order of the selector's string.
    pub fn ranges(&self) -> &[ShardRange] {
        &self.ranges
    }

    /// Returns whether a hash of the field is selected.
    pub fn contains(&self, hash: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(hash))
    }

    /// Returns whether a value of the field is selected.
    pub fn matches(&self, value: &str) -> bool {
        self.contains(hash_field(value))
    }
}

/// Writes the selector in the form of the query parameter `shardSelector`.
impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ShardRange { first, last }) in self.ranges.iter().enumerate() {
            let or = if index > 0 { " || " } else { "" };
            let (field, end) = (self.field.path(), u128::from(*last) + 1);
            write!(f, "{or}shardRange({field}, '0x{first:016x}', '0x{end:016x}')")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of upstream's `HashField`.
    #[test]
    fn hashes_are_upstreams() {
        for (value, hash) in [
            ("", "cbf29ce484222325"),
            ("abc", "e71fa2190541574b"),
            ("test-uid-12345", "d4c53b72f9287c28"),
            ("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "93754b7248a00eb9"),
            ("default", "ebada5168620c5fe"),
            ("kube-system", "df65c7bc1d82b35e"),
            ("übung", "d3b973973ab61654"),
        ] {
            assert_eq!(format!("{:016x}", hash_field(value)), hash, "{value}");
        }
    }

    #[test]
    fn ranges_contain_their_start_and_not_their_end() {
        let all = ShardRange::new(0, HASH_SPACE).expect("a range");
        let low = ShardRange::new(0, 0x80).expect("a range");
        let high = ShardRange::new(0x80, HASH_SPACE).expect("a range");
        for (hash, in_low) in [(0, true), (0x7f, true), (0x80, false), (u64::MAX, false)] {
            let found = [all, low, high].map(|range| range.contains(hash));
            assert_eq!(found, [true, in_low, !in_low], "{hash:x}");
        }
        for (start, end) in [(1, 1), (2, 1), (HASH_SPACE, HASH_SPACE + 1), (0, HASH_SPACE + 1)] {
            assert_eq!(ShardRange::new(start, end), None, "{start:x} to {end:x}");
        }
    }

    #[test]
    fn a_selector_is_written_as_upstream_does() {
        let ranges = [(0xaa, 0xff), (1 << 63, HASH_SPACE)];
        let ranges = ranges.map(|(start, end)| ShardRange::new(start, end).expect("a range"));
        let selector = ShardSelector::new(ShardField::Uid, ranges.to_vec());
        assert_eq!(
            selector.to_string(),
            "shardRange(object.metadata.uid, '0x00000000000000aa', '0x00000000000000ff') || \
             shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
        );
        // The hash of the empty value is 0xcbf2….
        assert!(selector.matches("") && selector.contains(0xaa) && !selector.contains(0xff));
        for field in [ShardField::Uid, ShardField::Namespace] {
            assert_eq!(ShardField::of_path(field.path()), Some(field));
        }
        assert_eq!(ShardField::of_path("object.metadata.name"), None);
    }
}
