//! Writes one event, with upstream's patience.

use super::wire::event_namespace;
use crate::{
    client::{ApiError, Client, Metadata, full_text},
    clock::Clock,
    plan::{PatchForm, Target},
};
use bytes::Bytes;
use evenkeel_api::Kind;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_secs(10);

/// One event to be written.
pub(super) struct Write<'a> {
    pub(super) kind: &'a Kind,
    pub(super) regarding: &'a Target,
    pub(super) name: &'a str,
    /// The whole event.
    pub(super) body: Bytes,
    /// What changes of it, if it should be there already.
    pub(super) patch: Option<Bytes>,
}

/// Writes it, or gives up: when the server refuses it, after twelve tries without an answer, or when `stop` is cancelled
/// and it did not work at once.
pub(super) async fn write(
    client: &Client,
    clock: &Clock,
    stop: &CancellationToken,
    write: Write<'_>,
) {
    for attempt in 1..=TRIES {
        let Err(error) = once(client, &write).await else { return };
        if error.status().is_some() {
            refused(&error, &write);
            return;
        }
        tracing::debug!(
            event = write.name,
            error = full_text(&error),
            "event not written, will be retried"
        );
        // The first pause is drawn, so that not all clients come back at once after the server was away.
        let share = if attempt == 1 { clock.draw(&(write.name, "event")) } else { 1.0 };
        if stop.run_until_cancelled(clock.sleep(PAUSE.mul_f64(share))).await.is_none() {
            break;
        }
    }
    tracing::error!(event = write.name, "event given up, the API server does not answer");
}

async fn once(client: &Client, write: &Write<'_>) -> Result<(), ApiError> {
    let namespace = event_namespace(write.regarding);
    if let Some(patch) = &write.patch {
        let answer = client
            .patch::<Metadata>(
                write.kind,
                namespace,
                write.name,
                "",
                PatchForm::Strategic,
                patch.clone(),
            )
            .await;
        match answer {
            // It has expired, or was held back: it is made anew.
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
    }
    client.create::<Metadata>(write.kind, namespace, write.body.clone()).await.map(drop)
}

fn refused(error: &ApiError, write: &Write<'_>) {
    if error.is_already_exists() || error.namespace_terminating() {
        tracing::debug!(event = write.name, %error, "event refused");
    } else {
        tracing::warn!(event = write.name, %error, "event refused");
    }
}
