//! Reads the body of a request, up to the limit.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

use crate::status::StatusError;

/// Upstream's limit of a request's body.
const LIMIT: usize = 3 * 1024 * 1024;

/// What is left of a refused request is read up to here, so that the connection can go on.
const DRAIN: usize = 8 * 1024 * 1024;

/// The whole body.
pub(crate) async fn read<B>(mut body: Pin<&mut B>) -> Result<Bytes, StatusError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let too_large = || StatusError::too_large("limit is 3145728");
    if body.size_hint().lower() > LIMIT as u64 {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut more = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            StatusError::bad_request(format!("the body cannot be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        match &first {
            None if more.is_empty() => first = Some(data),
            _ => {
                if let Some(first) = first.take() {
                    more.extend_from_slice(&first);
                }
                more.extend_from_slice(&data);
            }
        }
        if first.as_ref().map_or(more.len(), Bytes::len) > LIMIT {
            return Err(too_large());
        }
    }
    Ok(first.unwrap_or_else(|| more.freeze()))
}

/// Reads and forgets what is left; false when that is too much.
pub(super) async fn drain<B>(mut body: Pin<&mut B>) -> bool
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let mut left = DRAIN;
    if body.size_hint().lower() > DRAIN as u64 {
        return false;
    }
    while !body.is_end_stream() {
        match body.frame().await {
            None => break,
            Some(Err(_)) => return false,
            Some(Ok(frame)) => {
                let size = frame.data_ref().map_or(0, Bytes::len);
                let Some(rest) = left.checked_sub(size) else { return false };
                left = rest;
            }
        }
    }
    true
}
