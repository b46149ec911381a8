//! Retries within a pass or outside of controllers: backoff with jitter, and retries after a conflict.
//!
//! A reconcile function rarely needs them: it returns its error, and its key is retried with backoff.
//!
//! | upstream | Evenkeel |
//! |---|---|
//! | `wait.Backoff`, `Step` | [`Backoff`], [`Backoff::delays`] |
//! | `retry.DefaultRetry`, `retry.DefaultBackoff` | [`Backoff::DEFAULT_RETRY`], [`Backoff::DEFAULT_BACKOFF`] |
//! | `retry.OnError` | [`on_error`] |
//! | `retry.RetryOnConflict` | [`retry_on_conflict`] |

use crate::{client::ApiError, clock::Clock, controller};
use std::time::Duration;

/// Delays between attempts: each is a multiple of the last one, with jitter.
///
/// Upstream: `wait.Backoff`.
#[doc(alias = "wait.Backoff")]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// First delay, without jitter.
    pub duration: Duration,
    /// Factor of each further delay. A value below 1 counts as 1.
    pub factor: f64,
    /// Random addition to each delay, at most this fraction of it. A value of 0 or less adds nothing.
    pub jitter: f64,
    /// Number of attempts. Between them is one delay less.
    pub steps: u32,
    /// Upper bound of a delay before its jitter.
    pub cap: Duration,
}

impl Backoff {
    /// Backoff of conflicts between writers that rarely meet: five attempts, 10 ms apart.
    ///
    /// Upstream: `retry.DefaultRetry`.
    pub const DEFAULT_RETRY: Self = Self {
        duration: Duration::from_millis(10),
        factor: 1.0,
        jitter: 0.1,
        steps: 5,
        cap: Duration::MAX,
    };

    /// Backoff of conflicts with a writer that works on the same object: four attempts, 10 ms to 250 ms apart.
    ///
    /// Upstream: `retry.DefaultBackoff`.
    pub const DEFAULT_BACKOFF: Self = Self { factor: 5.0, steps: 4, ..Self::DEFAULT_RETRY };

    /// Returns the delays between the attempts. `label` distinguishes sequences of one moment on a virtual clock, whose
    /// jitter can be repeated.
    pub fn delays(self, clock: &Clock, label: &str) -> Delays {
        let remaining = self.steps.saturating_sub(1);
        Delays {
            backoff: self,
            next: self.duration,
            remaining,
            clock: clock.clone(),
            label: label.into(),
        }
    }
}

/// Iterator over the delays of a [`Backoff`].
#[derive(Debug, Clone)]
pub struct Delays {
    backoff: Backoff,
    /// The next delay, without cap and jitter.
    next: Duration,
    remaining: u32,
    clock: Clock,
    label: Box<str>,
}

impl Iterator for Delays {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.remaining = self.remaining.checked_sub(1)?;
        let Backoff { factor, jitter, cap, .. } = self.backoff;
        let delay = self.next.min(cap);
        self.next = times(delay, factor.max(1.0));
        let drawn = self.clock.draw(&(&*self.label, self.remaining));
        Some(delay.saturating_add(times(delay, jitter.max(0.0) * drawn)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = usize::try_from(self.remaining).unwrap_or(usize::MAX);
        (remaining, Some(remaining))
    }
}

/// Returns a multiple of a duration, at most the longest one.
fn times(duration: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// Errors that tell whether a write met another one.
pub trait IsConflict {
    /// Returns whether the server refused a write because the object has another version (409, `Conflict`).
    fn is_conflict(&self) -> bool;
}

impl IsConflict for ApiError {
    fn is_conflict(&self) -> bool {
        Self::is_conflict(self)
    }
}

impl IsConflict for kube::Error {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(status) if status.code == 409 && status.reason != "AlreadyExists")
    }
}

impl IsConflict for controller::Error {
    fn is_conflict(&self) -> bool {
        self.downcast_ref().is_some_and(ApiError::is_conflict)
            || self.downcast_ref::<kube::Error>().is_some_and(IsConflict::is_conflict)
    }
}

/// Calls `attempt` until it succeeds, fails with an error that `is_retriable` refuses, or the attempts of `backoff` are
/// used up. Waits for the delays on `clock`.
///
/// # Errors
/// Returns the error of the last attempt.
///
/// Upstream: `retry.OnError`.
#[doc(alias = "retry.OnError")]
pub async fn on_error<T, E, Fut>(
    clock: &Clock,
    backoff: Backoff,
    mut is_retriable: impl FnMut(&E) -> bool,
    mut attempt: impl FnMut() -> Fut,
) -> Result<T, E>
where
    Fut: Future<Output = Result<T, E>>,
{
    let mut delays = backoff.delays(clock, "retry");
    loop {
        let error = match attempt().await {
            Err(error) if is_retriable(&error) => error,
            result => return result,
        };
        let Some(delay) = delays.next() else { return Err(error) };
        clock.sleep(delay).await;
    }
}

/// Calls `attempt` again after a conflict. `attempt` reads the object each time, changes it, and writes it.
///
/// ```
/// use evenkeel_runtime::{clock::Clock, retry::{Backoff, retry_on_conflict}};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, api::PostParams};
///
/// # async fn run(maps: Api<ConfigMap>, clock: &Clock) -> kube::Result<()> {
/// let changed = retry_on_conflict(clock, Backoff::DEFAULT_RETRY, || async {
///     let mut map = maps.get("settings").await?;
///     map.data.get_or_insert_default().insert("mode".to_owned(), "on".to_owned());
///     maps.replace("settings", &PostParams::default(), &map).await
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns the error of the last attempt, or the first error that is not a conflict.
///
/// Upstream: `retry.RetryOnConflict`.
#[doc(alias = "RetryOnConflict")]
pub async fn retry_on_conflict<T, E, Fut>(
    clock: &Clock,
    backoff: Backoff,
    attempt: impl FnMut() -> Fut,
) -> Result<T, E>
where
    E: IsConflict,
    Fut: Future<Output = Result<T, E>>,
{
    on_error(clock, backoff, E::is_conflict, attempt).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Status;

    fn error(code: u16, reason: &str) -> ApiError {
        ApiError::Status(Box::new(Status { code, reason: reason.into(), ..Status::default() }))
    }

    fn clock() -> Clock {
        Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn delays_grow_to_the_cap_and_their_jitter_can_be_repeated() {
        let backoff = Backoff {
            duration: Duration::from_millis(100),
            factor: 3.0,
            jitter: 0.0,
            steps: 5,
            cap: Duration::from_millis(500),
        };
        let clock = clock();
        let millis = |backoff: Backoff| -> Vec<u128> {
            backoff.delays(&clock, "a").map(|delay| delay.as_millis()).collect()
        };
        assert_eq!(millis(backoff), [100, 300, 500, 500]);
        let with_jitter = millis(Backoff { jitter: 1.0, ..backoff });
        assert_eq!(with_jitter, millis(Backoff { jitter: 1.0, ..backoff }));
        let bounds = [100, 300, 500, 500].map(|delay| delay..=2 * delay);
        assert!(with_jitter.iter().zip(&bounds).all(|(delay, bound)| bound.contains(delay)));
        assert_ne!(with_jitter, [100, 300, 500, 500]);
        assert_eq!(millis(Backoff { steps: 0, ..backoff }), [0; 0]);
        let huge = Backoff { duration: Duration::MAX, cap: Duration::MAX, jitter: 1.0, ..backoff };
        assert!(huge.delays(&clock, "a").all(|delay| delay == Duration::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn only_conflicts_are_retried_and_the_last_one_is_returned() {
        let (clock, start) = (clock(), Clock::system().instant());
        let table = [
            (vec![(409, "Conflict"); 2], 3, Ok(3)),
            (vec![(409, "Conflict"); 9], 5, Err(409)),
            (vec![(409, "AlreadyExists"); 9], 1, Err(409)),
            (vec![(409, "Conflict"), (403, "Forbidden")], 2, Err(403)),
        ];
        for (errors, attempts, expected) in table {
            let mut calls = 0;
            let result = retry_on_conflict(&clock, Backoff::DEFAULT_RETRY, || {
                calls += 1;
                let failure = errors.get(calls - 1).map(|(code, reason)| error(*code, reason));
                std::future::ready(failure.map_or(Ok(calls), Err))
            })
            .await;
            assert_eq!((result.map_err(|error| error.code()), calls), (expected, attempts));
        }
        let waited = start.elapsed();
        let bounds = Duration::from_millis(70)..Duration::from_millis(79);
        assert!(bounds.contains(&waited), "{waited:?} of seven delays");
        assert!(controller::Error::from(error(409, "Conflict")).is_conflict());
        assert!(!controller::Error::message("409").is_conflict());
    }
}
