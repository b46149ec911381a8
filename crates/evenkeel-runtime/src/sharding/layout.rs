//! Hash of a key, and its shard.

use crate::plan::Key;

/// Part of a key that determines its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShardBy {
    /// The namespace, so that an owner and its children, and all controllers of an object, are in one shard. A
    /// cluster-scoped object's name.
    #[default]
    Namespace,
    /// Namespace and name, for operators whose objects are in few namespaces. An object and its children may be in
    /// different shards; only the shard of the reconciled key counts.
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
        let hash = match self.by {
            ShardBy::Namespace if !key.namespace.is_empty() => hash([&*key.namespace]),
            ShardBy::Namespace => hash([&*key.name]),
            ShardBy::Object => hash([&*key.namespace, "/", &*key.name]),
        };
        let scaled = (u128::from(hash) * u128::from(self.shards)) >> 64;
        u32::try_from(scaled).unwrap_or_default()
    }

    /// Returns the text by which members recognize each other's layout.
    pub(super) fn text(self) -> String {
        let by = match self.by {
            ShardBy::Namespace => "namespace",
            ShardBy::Object => "object",
        };
        format!("{}-by-{by}", self.shards)
    }
}

/// Returns the FNV-1a hash of 64 bits of the joined parts, spread over all bits.
pub(super) fn hash<const N: usize>(parts: [&str; N]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes());
    spread(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// Spreads a hash over all bits (the finalizer of MurmurHash3).
///
/// KEP-5866 hashes random uids, whose FNV-1a hash is uniform. Names that differ only in their last characters have equal
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
