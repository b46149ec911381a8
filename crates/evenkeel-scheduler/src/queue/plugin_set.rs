//! Set of a profile's plugins as a bit mask.

/// Set of plugin indexes within a profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PluginSet(u128);

impl PluginSet {
    /// Maximum number of plugins in a profile. The last two bits represent rejections that no plugin made.
    pub(crate) const MAX: usize = 126;
    /// Represents all extenders. They register no events, so any event may help.
    pub(crate) const EXTENDERS: usize = 126;
    /// Represents the absence of nodes. Only a new node makes such a pod schedulable.
    pub(crate) const NO_NODES: usize = 127;

    /// Adds a plugin by its index.
    pub(crate) fn insert(&mut self, plugin: usize) {
        self.0 |= 1 << plugin;
    }

    /// Returns whether the set has the plugin.
    pub(crate) fn contains(self, plugin: usize) -> bool {
        self.0 & (1 << plugin) != 0
    }

    /// Returns whether the set has no plugin.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the plugins of either set.
    #[must_use]
    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the plugins of both sets.
    #[must_use]
    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the plugins in ascending order of their indexes.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let next = bits.trailing_zeros() as usize;
            (bits != 0).then(|| {
                // This clears the lowest set bit.
                bits &= bits - 1;
                next
            })
        })
    }
}

impl FromIterator<usize> for PluginSet {
    fn from_iter<I: IntoIterator<Item = usize>>(plugins: I) -> Self {
        let mut set = Self::default();
        plugins.into_iter().for_each(|plugin| set.insert(plugin));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_contain_inserted_plugins() {
        let set: PluginSet = [3, 0, PluginSet::NO_NODES, 3].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 127]);
        assert!(set.contains(3) && !set.contains(4));
        assert!(set.intersection([4].into_iter().collect()).is_empty());
    }
}
