//! Hash of a key, and its shard.

use crate::plan::Key;
use evenkeel_api::sharding::{HASH_SPACE, ShardField, ShardRange, ShardSelector, hash_field};

/// Maximum number of ranges in a selector, so that it fits into a URL: each has about a hundred characters.
const MAX_RANGES: usize = 24;

/// Part of a key that determines its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShardBy {
    /// The namespace, or the name of a cluster-scoped object. An owner and its children, and all controllers of an object, are
    /// then in one shard.
    #[default]
    Namespace,
    /// The namespace, or a cluster-scoped object's name, by the hash and the ranges of KEP-5866. A server with the feature
    /// gate `ShardedListAndWatch` then sends only the served objects of [`Sharding::sharded_watch`].
    ///
    /// The hash of this KEP does not spread names that differ only in their last characters: `team-1` to `team-99` fall into
    /// few shards. Choose [`ShardBy::Namespace`] for such namespaces.
    ///
    /// [`Sharding::sharded_watch`]: super::Sharding::sharded_watch
    NamespaceRange,
    /// Namespace and name, for operators whose objects are in few namespaces. An object and its children may be in different
    /// shards; only the shard of the reconciled key matters.
    Object,
}

/// Division of all keys into shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) shards: u32,
    pub(super) by: ShardBy,
}

impl Layout {
    /// Returns the shard of a key: the shards are equal ranges of the hash.
    pub(super) fn shard_of(self, key: &Key) -> u32 {
        let of_namespace = if key.namespace.is_empty() { &key.name } else { &key.namespace };
        let hash = match self.by {
            ShardBy::NamespaceRange => hash_field(of_namespace),
            ShardBy::Namespace => hash(of_namespace),
            ShardBy::Object => hash(&format!("{}/{}", key.namespace, key.name)),
        };
        let scaled = (u128::from(hash) * u128::from(self.shards)) >> 64;
        u32::try_from(scaled).unwrap_or_default()
    }

    /// Returns the selector of the namespaced objects of some shards, in order. It may select more objects to stay short.
    /// Returns `None` if it would select all, or nothing, or if the server does not have the hash of this layout.
    pub(super) fn selector(self, shards: impl Iterator<Item = u32>) -> Option<ShardSelector> {
        if self.by != ShardBy::NamespaceRange {
            return None;
        }
        let mut ranges: Vec<(u128, u128)> = Vec::new();
        for shard in shards {
            let (start, end) = (self.start_of(shard), self.start_of(shard.saturating_add(1)));
            match ranges.last_mut() {
                Some((_, last)) if *last == start => *last = end,
                _ => ranges.push((start, end)),
            }
        }
        join_nearest(&mut ranges);
        if ranges == [(0, HASH_SPACE)] || ranges.is_empty() {
            return None;
        }
        let ranges = ranges.into_iter().filter_map(|(start, end)| ShardRange::new(start, end));
        Some(ShardSelector::new(ShardField::Namespace, ranges.collect()))
    }

    /// Returns the lowest hash of a shard.
    fn start_of(self, shard: u32) -> u128 {
        (u128::from(shard) << 64).div_ceil(u128::from(self.shards.max(1)))
    }

    /// Returns the string by which members recognize each other's layout.
    pub(super) fn text(self) -> String {
        let by = match self.by {
            ShardBy::Namespace => "namespace",
            ShardBy::NamespaceRange => "namespace-range",
            ShardBy::Object => "object",
        };
        format!("{}-by-{by}", self.shards)
    }
}

/// Joins ranges over the smallest gaps between them, until at most [`MAX_RANGES`] are left.
fn join_nearest(ranges: &mut Vec<(u128, u128)>) {
    while ranges.len() > MAX_RANGES {
        let gaps = ranges.windows(2).map(|pair| pair[1].0 - pair[0].1);
        let Some((index, _)) = gaps.enumerate().min_by_key(|(_, gap)| *gap) else { return };
        let (_, end) = ranges.remove(index + 1);
        ranges[index].1 = end;
    }
}

/// Returns the 64-bit FNV-1a hash of a string, mixed over all bits.
pub(super) fn hash(text: &str) -> u64 {
    spread(hash_field(text))
}

/// Spreads a hash over all bits (the finalizer of MurmurHash3).
///
/// KEP-5866 has only the FNV-1a hash, which is uniform for random uids. Names that differ only in their last characters have equal
/// high bits: of the hundred namespaces `team-0` to `team-99`, 90 would be in one of 16 ranges, and 12 ranges would be empty.
fn spread(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(layout: Layout, keys: impl Iterator<Item = Key>) -> Vec<usize> {
        let mut counts = vec![0; layout.shards as usize];
        for key in keys {
            counts[layout.shard_of(&key) as usize] += 1;
        }
        counts
    }

    #[test]
    fn numbered_names_spread_over_all_shards() {
        let by_namespace = Layout { shards: 16, by: ShardBy::Namespace };
        let by_object = Layout { shards: 16, by: ShardBy::Object };
        let teams = counts(by_namespace, (0..1000).map(|n| Key::new(&format!("team-{n}"), "a")));
        let nodes = counts(by_namespace, (0..1000).map(|n| Key::new("", &format!("node-{n}"))));
        let maps = counts(by_object, (0..1000).map(|n| Key::new("default", &format!("web-{n}"))));
        for counts in [teams, nodes, maps] {
            // On average 62.5.
            assert!(counts.iter().all(|count| (35..=95).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn a_selector_selects_the_namespaces_of_its_shards() {
        let layout = |shards, by| Layout { shards, by };
        for shards in [1, 2, 3, 7, 16, 1000, 1024] {
            let layout = layout(shards, ShardBy::NamespaceRange);
            for (held, exact) in [
                (vec![0], true),
                (vec![shards - 1], true),
                ((0..shards / 2).collect(), true),
                ((0..shards).step_by(3).collect::<Vec<_>>(), shards < 64),
            ] {
                let selector = layout.selector(held.iter().copied());
                for name in (0..500).map(|n| format!("{n}-tenant")) {
                    let is_held = held.contains(&layout.shard_of(&Key::new(&name, "a")));
                    let Some(selector) = &selector else { continue };
                    assert!(selector.ranges().len() <= MAX_RANGES);
                    assert!(!is_held || selector.matches(&name), "{name}: {selector}");
                    assert!(!exact || is_held || !selector.matches(&name), "{name}: {selector}");
                }
            }
            assert_eq!(layout.selector(0..shards), None, "all");
            assert_eq!(layout.selector(std::iter::empty()), None, "nothing");
        }
        let quarter = layout(4, ShardBy::NamespaceRange).selector([1, 3].into_iter());
        assert_eq!(
            quarter.map(|selector| selector.to_string()).as_deref(),
            Some(
                "shardRange(object.metadata.namespace, '0x4000000000000000', '0x8000000000000000') || \
                 shardRange(object.metadata.namespace, '0xc000000000000000', '0x10000000000000000')"
            )
        );
        for by in [ShardBy::Namespace, ShardBy::Object] {
            assert_eq!(layout(4, by).selector([1].into_iter()), None, "a hash of its own");
        }
    }

    #[test]
    fn objects_of_a_namespace_are_in_one_shard() {
        let layout = Layout { shards: 16, by: ShardBy::Namespace };
        let shard = layout.shard_of(&Key::new("default", "a"));
        assert_eq!(layout.shard_of(&Key::new("default", "b")), shard);
        // Members of different releases must agree.
        assert_eq!(
            ["default", "kube-system", "team-1"].map(|name| layout.shard_of(&Key::new(name, ""))),
            [13, 14, 0]
        );
        assert_eq!(Layout { shards: 1, by: ShardBy::Object }.shard_of(&Key::new("a", "b")), 0);
    }
}
