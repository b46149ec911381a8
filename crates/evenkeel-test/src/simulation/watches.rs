//! Watches whose events are delayed, held back or broken off.

use super::wire::{Body, wire_cut_error};
use crate::BoxError;
use bytes::Bytes;
use evenkeel_apiserver::Body as Answer;
use evenkeel_runtime::clock::Clock;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Body of a watch response whose frames are delayed.
pub(super) struct DelayedWatch {
    body: Answer,
    delay: Duration,
    /// End of the time for which frames are held back.
    held_until: Arc<Mutex<Option<Instant>>>,
    clock: Clock,
    /// Delayed frames, each with the time when it is due.
    queue: VecDeque<(Instant, Frame<Bytes>)>,
    /// Cancelled when a fault breaks the watch.
    broken: CancellationToken,
    /// Whether the body has no more frames.
    ended: bool,
    /// Whether the frames are still the initial events of a streaming list. They are not held back, because a list is
    /// consistent.
    initial: bool,
}

/// Annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";

pub(super) fn delayed_body(watch: DelayedWatch) -> Body {
    let frames = stream::unfold(watch, |mut watch| async move {
        let next = watch.next().await?;
        Some((next, watch))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl DelayedWatch {
    pub(super) fn new(
        body: Answer,
        delay: Duration,
        held_until: Arc<Mutex<Option<Instant>>>,
        clock: Clock,
        broken: CancellationToken,
        initial: bool,
    ) -> Self {
        let queue = VecDeque::new();
        Self { body, delay, held_until, clock, queue, broken, ended: false, initial }
    }

    /// Returns the time when a frame that arrives now is due, but not before the frames ahead of it. `None` means now.
    fn due(&mut self, frame: &Frame<Bytes>) -> Option<Instant> {
        let now = self.clock.instant();
        let mut held_until = *self.held_until.lock().unwrap_or_else(PoisonError::into_inner);
        if self.initial {
            held_until = None;
            let data = frame.data_ref().map_or(&[][..], |data| data);
            let mut windows = data.windows(INITIAL_EVENTS_END.len());
            self.initial = !windows.any(|window| window == INITIAL_EVENTS_END);
        }
        let last = self.queue.back().map(|(due, _)| *due);
        let due = (now + self.delay).max(held_until.unwrap_or(now)).max(last.unwrap_or(now));
        (due > now || last.is_some()).then_some(due)
    }

    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        loop {
            if self.ended && self.queue.is_empty() {
                return None;
            }
            let due = self.queue.front().map(|(due, _)| *due);
            tokio::select! {
                biased;
                () = self.broken.cancelled() => {
                    self.queue.clear();
                    self.ended = true;
                    return Some(Err(wire_cut_error()));
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(|| self.clock.instant())), if due.is_some() => {
                    return self.queue.pop_front().map(|(_, frame)| Ok(frame));
                }
                frame = self.body.frame(), if !self.ended => match frame {
                    Some(Ok(frame)) => match self.due(&frame) {
                        None => return Some(Ok(frame)),
                        Some(due) => self.queue.push_back((due, frame)),
                    },
                    Some(Err(timeout)) => {
                        self.ended = true;
                        return Some(Err(timeout.into()));
                    }
                    None => self.ended = true,
                },
            }
        }
    }
}
