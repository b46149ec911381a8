//! Limits the calls in flight to each webhook, so that one that hangs does not occupy all seats of the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Maximum number of parallel calls to one webhook. Further calls wait.
const CALLS: usize = 100;
/// Time without a finished call after which a webhook with [`CALLS`] calls in flight counts as hanging. New calls then
/// fail at once.
const SILENCE: Duration = Duration::from_secs(1);

/// Budgets of the webhooks with calls in flight, by URL.
#[derive(Debug, Default)]
pub(crate) struct Budgets(Mutex<HashMap<Box<str>, Arc<Budget>>>);

#[derive(Debug)]
struct Budget {
    calls: Arc<Semaphore>,
    start: Instant,
    /// Milliseconds from `start` to the end of the last call.
    answered: AtomicU64,
}

/// Call in flight, or waiting for its turn.
#[derive(Debug)]
pub(super) struct Call<'a> {
    budgets: &'a Budgets,
    url: &'a str,
    budget: Arc<Budget>,
    permit: Option<OwnedSemaphorePermit>,
}

/// Error: the webhook hangs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hangs;

impl Budget {
    fn new(now: Instant) -> Self {
        let calls = Arc::new(Semaphore::new(CALLS));
        Self { calls, start: now, answered: AtomicU64::new(0) }
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    fn silence(&self, now: Instant) -> Duration {
        let answered = Duration::from_millis(self.answered.load(Ordering::Relaxed));
        self.since_start(now).saturating_sub(answered)
    }
}

impl Budgets {
    /// Begins a call of the webhook at a URL, or waits until another call ends.
    pub(super) async fn begin<'a>(&'a self, url: &'a str, now: Instant) -> Result<Call<'a>, Hangs> {
        let budget = {
            let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            budgets.entry(url.into()).or_insert_with(|| Arc::new(Budget::new(now))).clone()
        };
        let mut call = Call { budgets: self, url, budget, permit: None };
        let calls = call.budget.calls.clone();
        call.permit = match calls.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) if call.budget.silence(now) >= SILENCE => return Err(Hangs),
            Err(_) => calls.acquire_owned().await.ok(),
        };
        Ok(call)
    }
}

impl Call<'_> {
    /// Records the end of a call, whatever its result.
    pub(super) fn answered(&self, now: Instant) {
        let milliseconds = u64::try_from(self.budget.since_start(now).as_millis());
        self.budget.answered.store(milliseconds.unwrap_or(u64::MAX), Ordering::Relaxed);
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
        for _ in 0..CALLS {
            calls.push(budgets.begin("https://a", clock.instant()).await.expect("a call"));
        }
        // A further call waits while the webhook responds.
        tokio::time::sleep(Duration::from_millis(900)).await;
        let waits = budgets.begin("https://a", clock.instant());
        assert!(tokio::time::timeout(Duration::from_millis(50), waits).await.is_err());
        calls[0].answered(clock.instant());
        tokio::time::sleep(Duration::from_millis(900)).await;
        let waits = budgets.begin("https://a", clock.instant());
        assert!(tokio::time::timeout(Duration::from_millis(50), waits).await.is_err());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(budgets.begin("https://a", clock.instant()).await.err(), Some(Hangs));
        // Calls of other webhooks succeed, and those of this one once a call ends.
        drop(budgets.begin("https://b", clock.instant()).await.expect("a call"));
        calls.pop();
        drop(budgets.begin("https://a", clock.instant()).await.expect("a call"));
        calls.clear();
        assert!(budgets.0.lock().expect("a lock").is_empty());
    }
}
