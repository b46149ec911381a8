//! Resource lists: quantities by resource name, and their arithmetic.
//!
//! Upstream: `ResourceList`, `k8s.io/apiserver/pkg/quota/v1/resources.go`.

use evenkeel_api::text::Text;
use evenkeel_api::{map::Map, quantity::Quantity};
use std::{collections::BTreeMap, fmt};

/// Quantities by resource name, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage(BTreeMap<Text, Quantity>);

impl Usage {
    /// Returns the quantity of a resource, or `None` if there is no entry.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Sets the quantity of a resource.
    pub fn set(&mut self, name: impl Into<Text>, amount: Quantity) {
        self.0.insert(name.into(), amount);
    }

    /// Returns the entries, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the quantities of `more`, resource by resource.
    ///
    /// Upstream: `Add`.
    pub fn add(&mut self, more: &Self) {
        for (name, amount) in &more.0 {
            match self.0.get_mut(name) {
                Some(sum) => *sum += *amount,
                None => drop(self.0.insert(name.clone(), *amount)),
            }
        }
    }

    /// Returns every quantity multiplied by `number`.
    #[must_use]
    pub fn times(&self, number: usize) -> Self {
        self.0.iter().map(|(name, amount)| (name.clone(), amount.times(number))).collect()
    }

    /// Returns the quantities minus those of `less`. A negative result becomes 0.
    ///
    /// Upstream: `SubtractWithNonNegativeResult`.
    #[must_use]
    pub fn saturating_sub(&self, less: &Self) -> Self {
        let difference = |name: &str, amount: Quantity| {
            let difference = less.get(name).map_or(amount, |less| amount.minus(less));
            if difference.sign() > 0 { difference } else { Quantity::ZERO }
        };
        self.0.iter().map(|(name, amount)| (name.clone(), difference(name, *amount))).collect()
    }

    /// Keeps the entries that pass a filter.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, Quantity) -> bool) {
        self.0.retain(|name, amount| keep(name, *amount));
    }

    /// Returns the entries whose names pass a filter.
    ///
    /// Upstream: `Mask`.
    #[must_use]
    pub fn mask(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(name, _)| keep(name));
        kept.map(|(name, amount)| (name.clone(), *amount)).collect()
    }
}

impl<N: Into<Text>> FromIterator<(N, Quantity)> for Usage {
    /// Collects entries. If a name occurs twice, the later quantity applies.
    fn from_iter<I: IntoIterator<Item = (N, Quantity)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(name, amount)| (name.into(), amount)).collect())
    }
}

impl From<&Map<Quantity>> for Usage {
    fn from(map: &Map<Quantity>) -> Self {
        map.iter().map(|(name, amount)| (name, *amount)).collect()
    }
}

impl fmt::Display for Usage {
    /// Formats the entries as `cpu=1,memory=2Gi`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, amount)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{name}={amount}")?;
        }
        Ok(())
    }
}
