//! Reads request bodies up to the size limit.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use http_body_util::BodyExt as _;

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

/// Returns the whole body, or a 413 if it is too large.
pub(crate) async fn read<B>(mut body: Pin<&mut B>) -> Result<Bytes, StatusError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
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
pub(crate) fn discard<B>(tasks: &Tasks, mut body: Pin<Box<B>>)
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    if body.is_end_stream() || body.size_hint().lower() > MAX_DRAIN_BYTES as u64 {
        return;
    }
    // Usually the rest of the body has already arrived.
    if drain(body.as_mut()).now_or_never().is_none() {
        tasks.spawn_brief(async move {
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain(body.as_mut())).await;
        });
    }
}

/// Reads and drops the body up to its end, at most [`MAX_DRAIN_BYTES`] bytes.
async fn drain<B>(mut body: Pin<&mut B>)
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let mut remaining = MAX_DRAIN_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let size = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = remaining.checked_sub(size) else { return };
        remaining = rest;
    }
}
