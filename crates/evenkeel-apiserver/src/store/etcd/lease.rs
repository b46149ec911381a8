//! Leases of objects that expire, such as events. Objects that are written within a short time share a lease.
//!
//! Upstream: `leaseManager`.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::client::{CallError, Client};
use super::wire::LeaseGrantRequest;
use crate::clock::Clock;

/// Maximum time during which objects share a lease, in seconds. Upstream: `defaultLeaseReuseDurationSeconds`.
const MAX_REUSE_SECONDS: u64 = 60;
/// Part of the time to live during which objects share a lease. Upstream: `leaseReuseDurationPercent`.
const REUSE_DIVISOR: u64 = 20;
/// Maximum number of objects that share a lease. Upstream: `defaultLeaseMaxObjectCount`.
const MAX_OBJECTS: usize = 1000;

/// Source of leases for one time to live.
pub(super) struct Leases {
    /// Time to live in seconds.
    ttl: u64,
    clock: Clock,
    current: Mutex<Option<Lease>>,
}

/// Lease that later objects may share.
#[derive(Debug, Clone, Copy)]
struct Lease {
    id: i64,
    expires_at: Instant,
    objects: usize,
}

impl Leases {
    pub(super) fn new(ttl: Duration, clock: Clock) -> Self {
        Self { ttl: ttl.as_secs(), clock, current: Mutex::default() }
    }

    /// Returns a lease that outlives the time to live, but not by much; 0 if objects do not expire.
    pub(super) async fn get(&self, client: &Client) -> Result<i64, CallError> {
        if self.ttl == 0 {
            return Ok(0);
        }
        let now = self.clock.instant();
        let reuse = reuse_seconds(self.ttl);
        let mut current = self.current.lock().await;
        if let Some(lease) = &mut *current
            && is_reusable(lease, now, self.ttl, reuse)
        {
            lease.objects += 1;
            return Ok(lease.id);
        }
        let ttl = self.ttl.saturating_add(reuse);
        let request = LeaseGrantRequest { ttl: i64::try_from(ttl).unwrap_or(i64::MAX) };
        let id = client.grant_lease(request).await?.id;
        *current = Some(Lease { id, expires_at: now + Duration::from_secs(ttl), objects: 1 });
        Ok(id)
    }
}

/// Returns how long objects share a lease, in seconds.
fn reuse_seconds(ttl: u64) -> u64 {
    (ttl / REUSE_DIVISOR).min(MAX_REUSE_SECONDS)
}

/// Returns whether an object that is written now can have this lease.
fn is_reusable(lease: &Lease, now: Instant, ttl: u64, reuse: u64) -> bool {
    let left = lease.expires_at.saturating_duration_since(now);
    let (ttl, reuse) = (Duration::from_secs(ttl), Duration::from_secs(reuse));
    left > ttl && left <= ttl.saturating_add(reuse) && lease.objects < MAX_OBJECTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_a_short_time_share_a_lease() {
        let now = Clock::system().instant();
        let lease =
            |left, objects| Lease { id: 1, expires_at: now + Duration::from_secs(left), objects };
        for (ttl, left, objects, expected) in [
            (3600, 3660, 1, true),
            (3600, 3601, 1, true),
            (3600, 3600, 1, false),
            (3600, 3661, 1, false),
            (3600, 3650, MAX_OBJECTS, false),
            (100, 105, 1, true),
            (100, 100, 1, false),
        ] {
            let reusable = is_reusable(&lease(left, objects), now, ttl, reuse_seconds(ttl));
            assert_eq!(reusable, expected, "{ttl} {left} {objects}");
        }
    }
}
