//! When a program may lead.

use crate::flags::{Reader, ValueError};
use std::time::Duration;

/// Leader election.
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
    ///
    /// # Errors
    /// When a value is not allowed; the error names the flag.
    pub fn check(read: &Reader) -> Result<Self, ValueError> {
        let leader = Self {
            elect: read.bool("leader-elect")?,
            lease_duration: read.duration("leader-elect-lease-duration")?,
            renew_deadline: read.duration("leader-elect-renew-deadline")?,
            retry_period: read.duration("leader-elect-retry-period")?,
            name: read.text("leader-elect-resource-name")?,
            namespace: read.text("leader-elect-resource-namespace")?,
        };
        let lock = read.text("leader-elect-resource-lock")?;
        if lock != "leases" {
            return Err(ValueError::refused("leader-elect-resource-lock", lock, "want leases"));
        }
        if leader.elect {
            leader.check_periods()?;
        }
        Ok(leader)
    }

    /// A leader must have time for several tries before the deadline, and give up before others take over.
    fn check_periods(&self) -> Result<(), ValueError> {
        use crate::flags::duration::print;
        if self.retry_period.is_zero() {
            return Err(ValueError::refused(
                "leader-elect-retry-period",
                "0s",
                "must be greater than zero",
            ));
        }
        if self.lease_duration <= self.renew_deadline {
            let given = print(self.lease_duration);
            return Err(ValueError::refused(
                "leader-elect-lease-duration",
                given,
                "must be greater than the renew deadline",
            ));
        }
        if self.renew_deadline <= self.retry_period.mul_f64(1.2) {
            let given = print(self.renew_deadline);
            let reason = "must be greater than the retry period times its jitter of 1.2";
            return Err(ValueError::refused("leader-elect-renew-deadline", given, reason));
        }
        Ok(())
    }
}
