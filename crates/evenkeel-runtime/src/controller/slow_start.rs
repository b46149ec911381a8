//! Batches of 1, 2, 4, … creates, so that creates that cannot succeed do not cause hundreds of concurrent requests.

use futures::future::join_all;

/// Calls `send` for `0..count` in concurrent batches, each twice as large as the one before. Stops after the first batch with a
/// result for which `may_continue` is false. Returns the results in order.
pub(super) async fn slow_start<T, Fut>(
    count: usize,
    send: impl Fn(usize) -> Fut,
    may_continue: impl Fn(&T) -> bool,
) -> Vec<T>
where
    Fut: Future<Output = T>,
{
    let mut answers = Vec::with_capacity(count);
    let mut batch = 1;
    while answers.len() < count {
        let start = answers.len();
        let end = count.min(start + batch);
        answers.extend(join_all((start..end).map(&send)).await);
        if !answers[start..].iter().all(&may_continue) {
            break;
        }
        batch *= 2;
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::{cell::RefCell, time::Duration};

    /// Returns the sizes of the batches if the call with index `failing` fails. The calls of one batch start at the
    /// same virtual time.
    async fn batches(count: usize, failing: Option<usize>) -> Vec<usize> {
        let starts = RefCell::new(Vec::new());
        let starts_ref = &starts;
        let call = move |n: usize| async move {
            starts_ref.borrow_mut().push(Clock::system().instant());
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some(n) != failing
        };
        slow_start(count, call, |ok| *ok).await;
        let starts = starts.into_inner();
        starts.chunk_by(|a, b| a == b).map(<[_]>::len).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn batches_double_until_all_calls_are_made() {
        assert_eq!(batches(10, None).await, [1, 2, 4, 3]);
        assert_eq!(batches(1, None).await, [1]);
        assert_eq!(batches(0, None).await, Vec::<usize>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn no_batch_follows_a_batch_with_an_error() {
        assert_eq!(batches(10, Some(0)).await, [1]);
        assert_eq!(batches(10, Some(1)).await, [1, 2]);
        assert_eq!(batches(100, Some(4)).await, [1, 2, 4]);
    }
}
