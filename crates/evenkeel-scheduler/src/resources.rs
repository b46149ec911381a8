//! Amounts of resources as integers.

use evenkeel_api::quantity::Quantity;
use evenkeel_component_helpers::resource::Amounts;
use smallvec::SmallVec;
use std::sync::Arc;

/// Amounts of resources: CPU in millicores, all others in base units, rounded up.
///
/// Upstream: `framework.Resource`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU in millicores.
    pub cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral_storage: i64,
    /// Extended resources, huge pages and other scalars, sorted by name.
    pub scalars: Scalars,
}

/// Amounts of scalar resources, sorted by name.
pub type Scalars = SmallVec<[(Arc<str>, i64); 1]>;

impl Resources {
    /// Converts quantities. Ignores resources that the scheduler does not count.
    pub fn from_amounts(amounts: &Amounts<'_>) -> Self {
        let mut resources = Self::default();
        for (name, amount) in amounts {
            resources.set(name, *amount);
        }
        resources
    }

    /// Sets the amount of one resource.
    pub(crate) fn set(&mut self, name: &str, amount: Quantity) {
        match name {
            "cpu" => self.cpu = amount.milli_value(),
            "memory" => self.memory = amount.value(),
            "ephemeral-storage" => self.ephemeral_storage = amount.value(),
            name if is_scalar(name) => *scalar_mut(&mut self.scalars, name) = amount.value(),
            _ => {}
        }
    }

    /// Returns the amount of a scalar resource, 0 if there is none.
    pub fn scalar(&self, name: &str) -> i64 {
        scalar(&self.scalars, name)
    }

    /// Returns whether every amount is 0.
    pub fn is_zero(&self) -> bool {
        let Self { cpu, memory, ephemeral_storage, scalars } = self;
        *cpu == 0
            && *memory == 0
            && *ephemeral_storage == 0
            && scalars.iter().all(|(_, amount)| *amount == 0)
    }
}

/// Returns whether the name belongs to a scalar resource.
///
/// Upstream: `IsScalarResourceName`.
pub(crate) fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

/// Returns whether the name belongs to an extended resource. Such a name is outside the `kubernetes.io` domain.
///
/// Upstream: `IsExtendedResourceName`.
pub(crate) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// Returns the amount of a scalar resource, 0 if there is none.
pub(crate) fn scalar(scalars: &Scalars, name: &str) -> i64 {
    scalars
        .binary_search_by(|(resource, _)| (**resource).cmp(name))
        .map_or(0, |index| scalars[index].1)
}

/// Returns the amount of a scalar resource as a mutable reference. Inserts 0 if there is none.
pub(crate) fn scalar_mut<'a>(scalars: &'a mut Scalars, name: &str) -> &'a mut i64 {
    let index = match scalars.binary_search_by(|(resource, _)| (**resource).cmp(name)) {
        Ok(index) => index,
        Err(index) => {
            scalars.insert(index, (name.into(), 0));
            index
        }
    };
    &mut scalars[index].1
}
