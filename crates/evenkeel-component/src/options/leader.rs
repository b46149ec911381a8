//! When a program may lead.

use crate::flags::Reader;
use anyhow::{Context, Result};
use evenkeel_runtime::leaderelection;
use std::time::Duration;

/// Options of leader election (`--leader-elect…`).
#[derive(Debug, Clone)]
pub struct LeaderOptions {
    /// Whether to lead before working.
    pub elect: bool,
    /// How long others wait for a silent leader.
    pub lease_duration: Duration,
    /// How long the leader tries to renew.
    pub renew_deadline: Duration,
    /// Pause between tries.
    pub retry_period: Duration,
    /// The Lease's name.
    pub name: String,
    /// The Lease's namespace.
    pub namespace: String,
}

impl LeaderOptions {
    /// Checks what was given.
    pub fn check(read: &Reader) -> Self {
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
            read.refuse("leader-elect-resource-lock", "resourceLock value must be \"leases\"");
        }
        for (flag, field, value) in [
            ("leader-elect-resource-name", "resourceName", &leader.name),
            ("leader-elect-resource-namespace", "resourceNamespace", &leader.namespace),
        ] {
            if value.is_empty() {
                read.refuse(flag, format!("{field}: Required value"));
            }
        }
        leader.check_periods(read);
        leader
    }

    /// The election that these ask for, of this process: `<host name>_<uuid>` is upstream's form of an identity.
    ///
    /// # Errors
    /// When the system gives no uuid.
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

    /// A leader must have time for several tries before the deadline, and give up before others take over.
    fn check_periods(&self, read: &Reader) {
        let positive = [
            ("leader-elect-lease-duration", "leaseDuration", self.lease_duration),
            ("leader-elect-renew-deadline", "renewDeadline", self.renew_deadline),
            ("leader-elect-retry-period", "retryPeriod", self.retry_period),
        ];
        for (flag, field, period) in positive {
            if period.is_zero() {
                read.refuse(flag, format!("{field} must be greater than zero"));
            }
        }
        if self.lease_duration <= self.renew_deadline {
            let rule = "leaseDuration must be greater than renewDeadline";
            read.refuse("leader-elect-lease-duration", rule);
        }
        if self.renew_deadline <= self.retry_period.mul_f64(1.2) {
            let rule = "renewDeadline must be greater than retryPeriod*JitterFactor";
            read.refuse("leader-elect-renew-deadline", rule);
        }
    }
}
