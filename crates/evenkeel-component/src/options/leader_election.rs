//! Flags of leader election (`--leader-elect…`).

use crate::flags::Reader;
use anyhow::{Context, Result};
use evenkeel_runtime::leaderelection;
use std::time::Duration;

/// Factor of the longest delay between attempts (client-go's `JitterFactor`).
const JITTER_FACTOR: f64 = 1.2;

/// Options of leader election.
///
/// Upstream: `LeaderElectionConfiguration`.
#[derive(Debug, Clone)]
pub struct LeaderElectionOptions {
    /// Whether to acquire the lease before the controllers start.
    pub elect: bool,
    /// Time that a standby waits for a leader that does not renew.
    pub lease_duration: Duration,
    /// Time for which the leader retries to renew.
    pub renew_deadline: Duration,
    /// Delay between attempts.
    pub retry_period: Duration,
    /// Name of the Lease object.
    pub name: String,
    /// Namespace of the Lease object.
    pub namespace: String,
}

impl LeaderElectionOptions {
    /// Reads and validates the flags.
    pub fn from_flags(read: &Reader) -> Self {
        let leader = Self {
            elect: read.bool("leader-elect"),
            lease_duration: read.duration("leader-elect-lease-duration"),
            renew_deadline: read.duration("leader-elect-renew-deadline"),
            retry_period: read.duration("leader-elect-retry-period"),
            name: read.text("leader-elect-resource-name"),
            namespace: read.text("leader-elect-resource-namespace"),
        };
        let lock = read.text("leader-elect-resource-lock");
        if !leader.elect {
            return leader;
        }
        if lock != "leases" {
            read.record_invalid(
                "leader-elect-resource-lock",
                "resourceLock value must be \"leases\"",
            );
        }
        for (flag, field, value) in [
            ("leader-elect-resource-name", "resourceName", &leader.name),
            ("leader-elect-resource-namespace", "resourceNamespace", &leader.namespace),
        ] {
            if value.is_empty() {
                read.record_invalid(flag, format!("{field}: Required value"));
            }
        }
        leader.validate_durations(read);
        leader
    }

    /// Returns the configuration of this process's elector, with upstream's form of identity, `<host
    /// name>_<uuid>`.
    ///
    /// # Errors
    /// Fails if the system provides no uuid.
    pub fn election(&self) -> Result<leaderelection::Config> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid")
            .context("no identity for the election")?;
        let identity = format!("{}_{}", host.trim(), id.trim());
        Ok(leaderelection::Config {
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            ..leaderelection::Config::new(&self.namespace, &self.name, &identity)
        })
    }

    /// Validates the durations: several attempts must fit into the renew deadline, which must end before the
    /// lease.
    fn validate_durations(&self, read: &Reader) {
        let positive = [
            ("leader-elect-lease-duration", "leaseDuration", self.lease_duration),
            ("leader-elect-renew-deadline", "renewDeadline", self.renew_deadline),
            ("leader-elect-retry-period", "retryPeriod", self.retry_period),
        ];
        for (flag, field, duration) in positive {
            if duration.is_zero() {
                read.record_invalid(flag, format!("{field} must be greater than zero"));
            }
        }
        if self.lease_duration <= self.renew_deadline {
            let rule = "leaseDuration must be greater than renewDeadline";
            read.record_invalid("leader-elect-lease-duration", rule);
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER_FACTOR) {
            let rule = "renewDeadline must be greater than retryPeriod*JitterFactor";
            read.record_invalid("leader-elect-renew-deadline", rule);
        }
    }
}
