//! Limits the calls in flight to each webhook, so that a webhook that hangs does not occupy all seats of API priority
//! and fairness.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Maximum number of parallel calls to one webhook. Further calls wait.
const MAX_CALLS: usize = 100;
/// Time without a finished call before a webhook with [`MAX_CALLS`] calls in flight counts as hanging. New calls then
/// fail immediately.
const HANG_TIMEOUT: Duration = Duration::from_secs(1);

/// Budgets of the webhooks with calls in flight, by URL.
#[derive(Debug, Default)]
pub(crate) struct Budgets(Mutex<HashMap<Box<str>, Arc<Budget>>>);

/// Calls in flight to one webhook.
#[derive(Debug)]
struct Budget {
    /// One permit for each call that may still begin.
    permits: Arc<Semaphore>,
    /// Time at which the budget was created.
    created: Instant,
    /// Milliseconds from `created` to the end of the last call.
    last_end: AtomicU64,
}

/// Call that is in flight or waits for a permit. Dropping the last call of a webhook removes its budget.
#[derive(Debug)]
pub(super) struct Call<'a> {
    budgets: &'a Budgets,
    url: &'a str,
    budget: Arc<Budget>,
    /// `None` until the call may begin.
    permit: Option<OwnedSemaphorePermit>,
}

/// Error: the webhook hangs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hangs;

impl Budget {
    fn new(now: Instant) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_CALLS));
        Self { permits, created: now, last_end: AtomicU64::new(0) }
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.created)
    }

    /// Returns the time since the last call ended, or since the budget was created.
    fn time_since_last_end(&self, now: Instant) -> Duration {
        let last_end = Duration::from_millis(self.last_end.load(Ordering::Relaxed));
        self.age(now).saturating_sub(last_end)
    }
}

impl Budgets {
    /// Begins a call of the webhook at a URL. Waits for another call to end if too many are in flight.
    pub(super) async fn begin<'a>(&'a self, url: &'a str, now: Instant) -> Result<Call<'a>, Hangs> {
        let budget = {
            let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            budgets.entry(url.into()).or_insert_with(|| Arc::new(Budget::new(now))).clone()
        };
        let mut call = Call { budgets: self, url, budget, permit: None };
        let permits = call.budget.permits.clone();
        call.permit = match permits.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) if call.budget.time_since_last_end(now) >= HANG_TIMEOUT => return Err(Hangs),
            Err(_) => permits.acquire_owned().await.ok(),
        };
        Ok(call)
    }
}

impl Call<'_> {
    /// Records that the call ended, with any result.
    pub(super) fn record_end(&self, now: Instant) {
        let milliseconds = u64::try_from(self.budget.age(now).as_millis());
        self.budget.last_end.store(milliseconds.unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut budgets = self.budgets.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The map and this call hold the only references, so no other call uses the budget.
        if Arc::strong_count(&self.budget) == 2 {
            budgets.remove(self.url);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn a_webhook_that_hangs_is_not_waited_for() {
        let clock = Clock::system();
        let budgets = Budgets::default();
        let mut calls = Vec::new();
        for _ in 0..MAX_CALLS {
            calls.push(budgets.begin("https://a", clock.instant()).await.expect("a call"));
        }
        // A further call waits while the webhook responds.
        tokio::time::sleep(Duration::from_millis(900)).await;
        let waits = budgets.begin("https://a", clock.instant());
        assert!(tokio::time::timeout(Duration::from_millis(50), waits).await.is_err());
        calls[0].record_end(clock.instant());
        tokio::time::sleep(Duration::from_millis(900)).await;
        let waits = budgets.begin("https://a", clock.instant());
        assert!(tokio::time::timeout(Duration::from_millis(50), waits).await.is_err());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(budgets.begin("https://a", clock.instant()).await.err(), Some(Hangs));
        // Calls of other webhooks succeed. Calls of this webhook succeed after a call has ended.
        drop(budgets.begin("https://b", clock.instant()).await.expect("a call"));
        calls.pop();
        drop(budgets.begin("https://a", clock.instant()).await.expect("a call"));
        calls.clear();
        assert!(budgets.0.lock().expect("a lock").is_empty());
    }
}
