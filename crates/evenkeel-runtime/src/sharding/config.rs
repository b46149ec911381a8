//! Settings of a sharded operator: its id, the shards and the durations.

use super::{
    defect::Defect,
    layout::{Layout, ShardBy},
};
use crate::{cache::Full, leaderelection};
use evenkeel_api::{Kind, View};
use std::time::Duration;

/// Maximum number of shards. Each has a Lease, and members list all of them in each retry period.
pub const MAX_SHARDS: u32 = 1024;

/// Maximum length of the id, which is a label's value.
const MAX_ID_LENGTH: usize = 63;

/// Settings of a sharded operator, the same in all its replicas. See [`ManagerBuilder::sharding`].
///
/// ```
/// use evenkeel_runtime::sharding::{ShardBy, Sharding};
///
/// let sharding = Sharding::new("webapp", 16).by(ShardBy::Object);
/// assert!(sharding.check().is_ok());
/// ```
///
/// [`ManagerBuilder::sharding`]: crate::manager::ManagerBuilder::sharding
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharding {
    pub(super) id: String,
    pub(super) layout: Layout,
    /// Kinds whose caches hold only the served objects.
    pub(super) sharded_kinds: Vec<Kind>,
    pub(super) lease_duration: Duration,
    pub(super) renew_deadline: Duration,
    pub(super) retry_period: Duration,
    defect: Option<Defect>,
}

/// Rule that a [`Sharding`] violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShardingError {
    /// A duration is out of bounds.
    #[error(transparent)]
    Durations(#[from] leaderelection::ConfigError),
    /// The number of shards is out of bounds.
    #[error("the number of shards must be between 1 and {MAX_SHARDS}")]
    Shards,
    /// The id is not valid as a part of a name and as the value of a label.
    #[error("the id must be a DNS label of at most {MAX_ID_LENGTH} characters")]
    Id,
}

impl Sharding {
    /// Creates settings with this number of shards by namespace, and with the durations of leader election (15 s, 10 s, 2 s).
    ///
    /// `id` is the operator's name, the prefix of its Leases' names: at most 63 characters of a DNS label. Choose several times
    /// as many shards as replicas, for example 16, so that all replicas have about the same load.
    pub fn new(id: &str, shards: u32) -> Self {
        let leaderelection::Config { lease_duration, renew_deadline, retry_period, .. } =
            leaderelection::Config::new("", id, "");
        Self {
            id: id.to_owned(),
            layout: Layout { shards, by: ShardBy::default() },
            sharded_kinds: Vec::new(),
            lease_duration,
            renew_deadline,
            retry_period,
            defect: None,
        }
    }

    /// Sets the part of a key that determines its shard. Default: [`ShardBy::Namespace`].
    pub fn by(mut self, by: ShardBy) -> Self {
        self.layout.by = by;
        self
    }

    /// Sets the time after which other replicas take the shards of a replica that does not renew its Lease. Default: 15 s.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.lease_duration = duration;
        self
    }

    /// Caches only those objects of this kind that the replica serves. Other objects are dropped before they are decoded. With
    /// [`ShardBy::NamespaceRange`], a server with the feature gate `ShardedListAndWatch` (KEP-5866) does not even send them.
    ///
    /// Choose kinds whose objects are in the same shard as the reconciled key. These are the controllers' own kinds, and
    /// namespaced kinds that are read for objects of the same namespace, unless the shards are [by object](ShardBy::Object).
    /// When the replica loses a shard, event handlers see its objects as deleted, but no reconcile does.
    pub fn sharded_watch<K>(mut self) -> Self
    where
        Full<K>: View,
    {
        self.sharded_kinds.push(Full::<K>::kind());
        self
    }

    /// Sets the time after which a replica that cannot renew its Lease neither reconciles nor writes. Default: 10 s. This is
    /// also the maximum time for which a planned hand-over waits for the passes of a shard.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.renew_deadline = deadline;
        self
    }

    /// Sets the time between two renewals, and between two lists of the other replicas. Default: 2 s.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.retry_period = period;
        self
    }

    /// Plants a defect, to show that a simulation finds it.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn plant(mut self, defect: Defect) -> Self {
        self.defect = Some(defect);
        self
    }

    /// Returns whether a defect was planted.
    pub(super) fn has(&self, defect: Defect) -> bool {
        cfg!(feature = "test-util") && self.defect == Some(defect)
    }

    /// Returns the leader election for the work that cannot be sharded, with the same durations.
    pub(crate) fn election(&self, namespace: &str, identity: &str) -> leaderelection::Config {
        leaderelection::Config {
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            ..leaderelection::Config::new(namespace, &self.id, identity)
        }
    }

    /// Returns the timeout of one request for a Lease: half the renew deadline, as in leader election.
    pub(super) fn request_timeout(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// Checks id, shards and durations.
    ///
    /// # Errors
    /// Returns the first rule that the settings violate.
    pub fn check(&self) -> Result<(), ShardingError> {
        self.election("default", "identity").check()?;
        if !(1..=MAX_SHARDS).contains(&self.layout.shards) {
            return Err(ShardingError::Shards);
        }
        let id = &self.id;
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if id.len() > MAX_ID_LENGTH
            || id.starts_with('-')
            || id.ends_with('-')
            || !id.chars().all(is_allowed)
        {
            return Err(ShardingError::Id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        let valid = Sharding::new("maps", 16);
        assert_eq!(valid.check(), Ok(()));
        for (invalid, error) in [
            (Sharding::new("maps", 0), ShardingError::Shards),
            (Sharding::new("maps", 1025), ShardingError::Shards),
            (Sharding::new("a.b", 16), ShardingError::Id),
            (Sharding::new("-a", 16), ShardingError::Id),
            (Sharding::new(&"a".repeat(64), 16), ShardingError::Id),
            (Sharding::new("", 16), leaderelection::ConfigError::EmptyIdentity.into()),
            (
                valid.clone().renew_deadline(Duration::from_secs(15)),
                leaderelection::ConfigError::Lease.into(),
            ),
            (
                valid.clone().lease_duration(Duration::from_millis(10_900)),
                leaderelection::ConfigError::Lease.into(),
            ),
        ] {
            assert_eq!(invalid.check(), Err(error));
        }
    }
}
