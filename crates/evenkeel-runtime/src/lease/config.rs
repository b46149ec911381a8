//! What an election is about, and its times.

use std::{collections::BTreeMap, time::Duration};

/// An election: which lease, who contends, and how patiently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease, and of the metrics.
    pub name: String,
    /// Who this process is; must differ from every other contender's. Upstream: `<hostname>_<uuid>`.
    pub identity: String,
    /// How long others wait after the last change that they saw before they take over.
    pub lease_duration: Duration,
    /// How long the leader goes on trying to renew before it gives up.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry_period: Duration,
    /// Give the lease back when stepping down, so that another takes over at once.
    pub release_on_cancel: bool,
    /// Labels set on the Lease.
    pub labels: BTreeMap<String, String>,
    /// The server says who leads (coordinated election): the lease is only ever renewed. See [`super::Candidate`].
    pub coordinated: bool,
}

/// Times that cannot work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The leader would lose the lease before it gives up.
    #[error("lease duration must be greater than the renew deadline")]
    Lease,
    /// There would be no second attempt.
    #[error("renew deadline must be greater than 1.2 times the retry period")]
    Renew,
    /// The lease's duration is written in whole seconds.
    #[error("lease duration must be at least one second")]
    Seconds,
    /// Attempts without pause.
    #[error("retry period must be greater than zero")]
    Retry,
    /// Who contends has to be told apart.
    #[error("identity and name must not be empty")]
    Nameless,
}

impl Config {
    /// Upstream's times (15 s, 10 s, 2 s), released when stepping down.
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
        }
    }

    /// How long one request for the lease may take: half the renew deadline, so that one lost request does not cost the
    /// leadership (client-go's `resourcelock.NewFromKubeconfig`).
    pub(super) fn patience(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// Whether the times can work together.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { lease_duration, renew_deadline, retry_period, identity, name, .. } = self;
        if lease_duration <= renew_deadline {
            return Err(ConfigError::Lease);
        }
        if *renew_deadline <= retry_period.mul_f64(super::JITTER) {
            return Err(ConfigError::Renew);
        }
        if lease_duration.as_secs() < 1 {
            return Err(ConfigError::Seconds);
        }
        if retry_period.is_zero() {
            return Err(ConfigError::Retry);
        }
        if identity.is_empty() || name.is_empty() {
            return Err(ConfigError::Nameless);
        }
        Ok(())
    }
}
