//! Write of one event, with upstream's retries.

use super::wire::event_namespace;
use crate::{
    client::{ApiError, Client, Metadata, full_text},
    clock::Clock,
    plan::{PatchType, Target},
};
use bytes::Bytes;
use evenkeel_api::Kind;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const MAX_ATTEMPTS_PER_EVENT: u32 = 12;
const SLEEP_DURATION: Duration = Duration::from_secs(10);

/// Write of an Event.
pub(super) struct EventWrite<'a> {
    pub(super) kind: &'a Kind,
    pub(super) regarding: &'a Target,
    pub(super) name: &'a str,
    /// The whole event.
    pub(super) body: Bytes,
    /// The patch of an Event that should already exist.
    pub(super) patch: Option<Bytes>,
}

/// Writes an event. Gives up if the server refuses it, after twelve attempts without a response, or after a failed
/// attempt if `stop` is cancelled.
///
/// Upstream: `recordToSink`.
pub(super) async fn record_to_sink(
    client: &Client,
    clock: &Clock,
    stop: &CancellationToken,
    write: EventWrite<'_>,
) {
    for attempt in 1..=MAX_ATTEMPTS_PER_EVENT {
        let Err(error) = record_event(client, &write).await else { return };
        if error.status().is_some() {
            log_refused(&error, &write);
            return;
        }
        tracing::debug!(
            event = write.name,
            error = full_text(&error),
            "event not written, will be retried"
        );
        // The first delay is random, so that clients retry at different times after the server was unreachable.
        let fraction = if attempt == 1 { clock.draw(&(write.name, "event")) } else { 1.0 };
        if stop.run_until_cancelled(clock.sleep(SLEEP_DURATION.mul_f64(fraction))).await.is_none() {
            break;
        }
    }
    tracing::error!(event = write.name, "unable to write event (retry limit exceeded!)");
}

/// Patches the Event, or creates it if it does not exist.
///
/// Upstream: `recordEvent`.
async fn record_event(client: &Client, write: &EventWrite<'_>) -> Result<(), ApiError> {
    let namespace = event_namespace(write.regarding);
    if let Some(patch) = &write.patch {
        let answer = client
            .patch::<Metadata>(
                write.kind,
                namespace,
                write.name,
                "",
                PatchType::Strategic,
                patch.clone(),
            )
            .await;
        match answer {
            // The Event has expired or was never written: create it.
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
    }
    client.create::<Metadata>(write.kind, namespace, write.body.clone()).await.map(drop)
}

fn log_refused(error: &ApiError, write: &EventWrite<'_>) {
    if error.is_already_exists() || error.is_namespace_terminating() {
        tracing::debug!(event = write.name, %error, "event refused");
    } else {
        tracing::warn!(event = write.name, %error, "event refused");
    }
}
