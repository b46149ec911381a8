//! Calls in flight by webhook: one that hangs must not take the seats of requests that others could serve.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Calls of one webhook at once; more wait for one to end.
const CALLS: usize = 100;
/// A webhook hangs when all of these are in flight and none was answered for this long. Then nobody waits for it any more.
const SILENCE: Duration = Duration::from_secs(1);

/// The webhooks that are being called, by URL.
#[derive(Debug, Default)]
pub(crate) struct Budgets(Mutex<HashMap<Box<str>, Arc<Budget>>>);

#[derive(Debug)]
struct Budget {
    calls: Arc<Semaphore>,
    start: Instant,
    /// Milliseconds from `start` to the last answer.
    answered: AtomicU64,
}

/// A call in flight, or one that waits to be.
#[derive(Debug)]
pub(super) struct Call<'a> {
    budgets: &'a Budgets,
    url: &'a str,
    budget: Arc<Budget>,
    permit: Option<OwnedSemaphorePermit>,
}

/// The webhook hangs.
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
    /// Begins a call of the webhook at a URL, or waits for another one to end.
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
    /// Notes that the webhook answered, whatever it said.
    pub(super) fn answered(&self, now: Instant) {
        let milliseconds = u64::try_from(self.budget.since_start(now).as_millis());
        self.budget.answered.store(milliseconds.unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut budgets = self.budgets.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One for the map, one for this call: nobody else calls it.
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
        // Another one waits as long as there are answers.
        tokio::time::sleep(Duration::from_millis(900)).await;
        let waits = budgets.begin("https://a", clock.instant());
        assert!(tokio::time::timeout(Duration::from_millis(50), waits).await.is_err());
        calls[0].answered(clock.instant());
        tokio::time::sleep(Duration::from_millis(900)).await;
        let waits = budgets.begin("https://a", clock.instant());
        assert!(tokio::time::timeout(Duration::from_millis(50), waits).await.is_err());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(budgets.begin("https://a", clock.instant()).await.err(), Some(Hangs));
        // Others are called, and it too when a call is over.
        drop(budgets.begin("https://b", clock.instant()).await.expect("a call"));
        calls.pop();
        drop(budgets.begin("https://a", clock.instant()).await.expect("a call"));
        calls.clear();
        assert!(budgets.0.lock().expect("a lock").is_empty());
    }
}
