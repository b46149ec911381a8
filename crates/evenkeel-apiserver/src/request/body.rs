//! Reads request bodies up to the size limit.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use http_body::Body as _;
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};

use crate::tasks::Tasks;
use evenkeel_apimachinery::status::StatusError;

/// Maximum size of a request's body in bytes.
///
/// Upstream: `MaxRequestBodyBytes`.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Maximum number of bytes to drain after the response, so that the connection can be reused.
const MAX_DRAIN_BYTES: usize = 8 * 1024 * 1024;

/// Maximum time for the drain.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Body of a request from any connection or in-process client. With a type for each source, the whole pipeline would be
/// compiled for each source, and again in each crate that calls the server.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, String>;

/// Boxes the body of a request, and converts its errors to messages.
pub(crate) fn boxed<B>(body: B) -> RequestBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    body.map_err(|error| error.to_string()).boxed_unsync()
}

/// Returns the whole body, or a 413 if it is too large.
pub(crate) async fn read(body: &mut RequestBody) -> Result<Bytes, StatusError> {
    let too_large = || StatusError::too_large(&format!("limit is {MAX_BODY_BYTES}"));
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    // A body of one frame is not copied. The second frame moves all bytes to `buffer`.
    let mut first: Option<Bytes> = None;
    let mut buffer = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            StatusError::bad_request(format!("the body cannot be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        match &first {
            None if buffer.is_empty() => first = Some(data),
            _ => {
                if let Some(first) = first.take() {
                    buffer.extend_from_slice(&first);
                }
                buffer.extend_from_slice(&data);
            }
        }
        if first.as_ref().map_or(buffer.len(), Bytes::len) > MAX_BODY_BYTES {
            return Err(too_large());
        }
    }
    Ok(first.unwrap_or_else(|| buffer.freeze()))
}

/// Drains the rest of a body without delaying the response. A client that still writes can then read the response and
/// reuse the connection. The connection closes if the rest is too large or too slow.
pub(crate) fn discard(tasks: &Tasks, mut body: RequestBody) {
    if body.is_end_stream() || body.size_hint().lower() > MAX_DRAIN_BYTES as u64 {
        return;
    }
    // Usually the rest of the body has already arrived.
    if drain(&mut body).now_or_never().is_none() {
        tasks.spawn_brief(async move {
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain(&mut body)).await;
        });
    }
}

/// Reads and drops the body up to its end, at most [`MAX_DRAIN_BYTES`] bytes.
async fn drain(body: &mut RequestBody) {
    let mut remaining = MAX_DRAIN_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let size = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = remaining.checked_sub(size) else { return };
        remaining = rest;
    }
}
