//! Limits the number of streaming connections that are open at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_apimachinery::status::StatusError;
use http::StatusCode;

/// Maximum number of connections of all users together.
const MAX_STREAMS: usize = 512;
/// Maximum number of connections of one tenant.
const MAX_STREAMS_OF_TENANT: usize = 128;

/// Number of open connections by tenant. A tenant is a user, or all service accounts of a namespace: who may create one
/// service account may create many. Clones share the counts.
///
/// A tenant may have as many connections as are free. So a number of tenants cannot take all: the more they are, the fewer
/// each gets, and as many as one of them has stay free for others.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamLimits(Arc<Mutex<HashMap<Arc<str>, usize>>>);

/// Slot of an open connection. The drop frees it.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    limits: StreamLimits,
    tenant: Arc<str>,
}

/// Returns the tenant of a user: the prefix that is common to all service accounts of a namespace, or the name itself.
fn tenant_of(user: &str) -> &str {
    let service_account = user.strip_prefix("system:serviceaccount:");
    service_account.and_then(|_| user.rsplit_once(':')).map_or(user, |(namespace, _)| namespace)
}

impl StreamLimits {
    /// Takes a slot for a connection of a user. Fails with 429 if a limit is reached.
    pub(crate) fn take(&self, user: &str) -> Result<StreamSlot, StatusError> {
        let tenant = tenant_of(user);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = open.values().sum();
        let free = MAX_STREAMS.saturating_sub(total);
        let of_tenant = open.get(tenant).copied().unwrap_or(0);
        if of_tenant >= MAX_STREAMS_OF_TENANT.min(free) {
            let message =
                format!("too many streams are open: {of_tenant} of the user, {total} in total");
            let rejection =
                StatusError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
            return Err(rejection.retry_after(1));
        }
        let tenant: Arc<str> = tenant.into();
        *open.entry(tenant.clone()).or_default() += 1;
        drop(open);
        Ok(StreamSlot { limits: self.clone(), tenant })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.limits.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.tenant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_counted_by_user_and_in_total() {
        let limits = StreamLimits::default();
        let mut slots = Vec::new();
        for _ in 0..MAX_STREAMS_OF_TENANT {
            slots.push(limits.take("a").expect("a place"));
        }
        let refused = limits.take("a").expect_err("no place").message().to_owned();
        assert_eq!(refused, "too many streams are open: 128 of the user, 128 in total");
        for n in MAX_STREAMS_OF_TENANT..MAX_STREAMS {
            slots.push(limits.take(&n.to_string()).expect("a place"));
        }
        assert!(limits.take("b").is_err());
        slots.swap_remove(0);
        limits.take("b").expect("a place again");
        slots.clear();
        assert!(limits.0.lock().expect("a lock").is_empty());
    }

    #[test]
    fn greedy_tenants_leave_connections_to_others() {
        let limits = StreamLimits::default();
        let mut slots = Vec::new();
        for round in 0..200 {
            for namespace in 0..8 {
                let user = format!("system:serviceaccount:n{namespace}:a{round}");
                slots.extend(limits.take(&user));
            }
        }
        assert_eq!(slots.len(), 8 * 57, "a ninth each");
        for _ in 0..20 {
            slots.push(limits.take("admin").expect("a place"));
        }
    }
}
