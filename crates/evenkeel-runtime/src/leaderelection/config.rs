//! Configuration of an election: the Lease, the elector's identity and the durations.

use super::CandidateConfig;
use std::{collections::BTreeMap, time::Duration};

/// Version of a program that names none.
const DEFAULT_VERSION: &str = "0.0.0";

/// Strategy of the server's choice, the only one that upstream has.
///
/// Upstream: `v1.OldestEmulationVersion`.
const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";

/// Configuration of an elector.
#[doc(alias = "LeaderElectionConfig")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease, and of the metrics.
    pub name: String,
    /// Identity of this process, unique among the electors of a lease. Upstream's programs use
    /// `<hostname>_<uuid>`.
    pub identity: String,
    /// Time for which other electors wait after the last observed change of the lease before they acquire it.
    pub lease_duration: Duration,
    /// Time after which a leader that cannot renew the lease stops leading.
    pub renew_deadline: Duration,
    /// Time between two attempts to acquire or renew.
    pub retry_period: Duration,
    /// Whether the leader releases the lease when it steps down, so that another process can acquire it
    /// immediately.
    pub release_on_cancel: bool,
    /// Labels of the Lease.
    pub labels: BTreeMap<String, String>,
    /// Coordinated election (KEP-4355): the server assigns the lease, and the elector only renews it. A
    /// [manager](crate::manager) then also runs the [`super::Candidate`] among which the server chooses.
    pub coordinated: bool,
    /// Version of the program, on which the choice in a coordinated election is based. Three numbers, such as `1.4.0`.
    pub binary_version: String,
    /// Version whose behavior the program emulates (KEP-4330). A coordinated election prefers the oldest.
    pub emulation_version: String,
}

/// Rule that a [`Config`] violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The leader would lose the lease before its renew deadline. A Lease has its duration in whole seconds, so a fraction does
    /// not count.
    #[error("lease duration in whole seconds must be greater than the renew deadline")]
    Lease,
    /// The deadline would leave no time for a second attempt to renew.
    #[error("renew deadline must be greater than 1.2 times the retry period")]
    Renew,
    /// A Lease has its duration in whole seconds.
    #[error("lease duration must be at least one second")]
    LeaseSeconds,
    /// There would be no delay between two attempts.
    #[error("retry period must be greater than zero")]
    Retry,
    /// Identity and name distinguish electors and leases.
    #[error("identity and name must not be empty")]
    EmptyIdentity,
}

impl Config {
    /// Creates a configuration with upstream's durations (15 s, 10 s, 2 s) that releases the lease when
    /// stepping down.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: true,
            labels: BTreeMap::new(),
            coordinated: false,
            binary_version: DEFAULT_VERSION.to_owned(),
            emulation_version: DEFAULT_VERSION.to_owned(),
        }
    }

    /// Creates a configuration of a coordinated election (KEP-4355), with the version of the program. The server chooses the
    /// candidate with the oldest version, so that the leadership does not move back and forth during a rolling upgrade.
    ///
    /// The server needs the feature `CoordinatedLeaderElection`. Without this feature no candidate becomes the leader.
    #[doc(alias = "CoordinatedLeaderElection")]
    pub fn coordinated(namespace: &str, name: &str, identity: &str, version: &str) -> Self {
        Self {
            coordinated: true,
            binary_version: version.to_owned(),
            emulation_version: version.to_owned(),
            ..Self::new(namespace, name, identity)
        }
    }

    /// Returns the candidate that a coordinated election needs, or `None` for another election.
    pub(crate) fn candidate(&self) -> Option<CandidateConfig> {
        self.coordinated.then(|| CandidateConfig {
            namespace: self.namespace.clone(),
            identity: self.identity.clone(),
            lease: self.name.clone(),
            binary_version: self.binary_version.clone(),
            emulation_version: self.emulation_version.clone(),
            strategy: OLDEST_EMULATION_VERSION.to_owned(),
        })
    }

    /// Returns the timeout of one request for the lease: half the renew deadline, so that the loss of a single request
    /// does not cause the loss of the lease.
    ///
    /// Upstream: `NewFromKubeconfig`.
    pub(super) fn request_timeout(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// Checks the durations, and that identity and name are not empty.
    ///
    /// Upstream: `NewLeaderElector`.
    ///
    /// # Errors
    /// Returns the first rule that the configuration violates.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { lease_duration, renew_deadline, retry_period, identity, name, .. } = self;
        if lease_duration <= renew_deadline {
            return Err(ConfigError::Lease);
        }
        if *renew_deadline <= retry_period.mul_f64(super::JITTER) {
            return Err(ConfigError::Renew);
        }
        if lease_duration.as_secs() < 1 {
            return Err(ConfigError::LeaseSeconds);
        }
        if Duration::from_secs(lease_duration.as_secs()) <= *renew_deadline {
            return Err(ConfigError::Lease);
        }
        if retry_period.is_zero() {
            return Err(ConfigError::Retry);
        }
        if identity.is_empty() || name.is_empty() {
            return Err(ConfigError::EmptyIdentity);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_lasts_longer_than_the_renew_deadline_in_whole_seconds() {
        let table = [
            (15_000, 10_000, Ok(())),
            (2_000, 1_500, Ok(())),
            (1_900, 1_500, Err(ConfigError::Lease)),
            (10_900, 10_000, Err(ConfigError::Lease)),
            (1_500, 1_500, Err(ConfigError::Lease)),
            (900, 500, Err(ConfigError::LeaseSeconds)),
        ];
        for (lease, deadline, expected) in table {
            let config = Config {
                lease_duration: Duration::from_millis(lease),
                renew_deadline: Duration::from_millis(deadline),
                retry_period: Duration::from_millis(100),
                ..Config::new("default", "test", "me")
            };
            assert_eq!(config.check(), expected, "{lease} ms, {deadline} ms");
        }
    }
}
