//! Limits the number of streaming connections that are open at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_apimachinery::status::StatusError;
use http::StatusCode;

/// Maximum number of connections of all users together.
const MAX_STREAMS: usize = 512;
/// Maximum number of connections of one user.
const MAX_STREAMS_OF_USER: usize = 128;

/// Number of open connections by user. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamLimits(Arc<Mutex<HashMap<Arc<str>, usize>>>);

/// Slot of an open connection. The drop frees it.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    limits: StreamLimits,
    user: Arc<str>,
}

impl StreamLimits {
    /// Takes a slot for a connection of a user. Fails with 429 if a limit is reached.
    pub(crate) fn take(&self, user: &str) -> Result<StreamSlot, StatusError> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = open.values().sum();
        let of_user = open.get(user).copied().unwrap_or(0);
        if total >= MAX_STREAMS || of_user >= MAX_STREAMS_OF_USER {
            let message =
                format!("too many streams are open: {of_user} of the user, {total} in total");
            let rejection =
                StatusError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
            return Err(rejection.retry_after(1));
        }
        let user: Arc<str> = user.into();
        *open.entry(user.clone()).or_default() += 1;
        drop(open);
        Ok(StreamSlot { limits: self.clone(), user })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.limits.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&self.user);
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
        for _ in 0..MAX_STREAMS_OF_USER {
            slots.push(limits.take("a").expect("a place"));
        }
        let refused = limits.take("a").expect_err("no place").message().to_owned();
        assert_eq!(refused, "too many streams are open: 128 of the user, 128 in total");
        for n in MAX_STREAMS_OF_USER..MAX_STREAMS {
            slots.push(limits.take(&n.to_string()).expect("a place"));
        }
        assert!(limits.take("b").is_err());
        slots.swap_remove(0);
        limits.take("a").expect("a place again");
        slots.clear();
        assert!(limits.0.lock().expect("a lock").is_empty());
    }
}
