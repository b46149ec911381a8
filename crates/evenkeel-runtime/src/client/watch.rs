//! Watch requests, and the frames of their responses.

use super::{ApiError, Client, negotiation, send::ApiRequest, transport::ResponseBody};
use bytes::Bytes;
use evenkeel_api::{DecodeError, Encoding, Kind, watch::Frames};
use http::Method;
use http_body_util::BodyExt as _;

/// Byte stream of a watch, split into frames.
pub(crate) struct Watch {
    body: ResponseBody,
    frames: Frames,
}

/// Error of an open watch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    #[error("the connection broke: {0}")]
    Transport(Box<str>),
    #[error("an event of the watch cannot be decoded: {0}")]
    Frame(#[from] DecodeError),
}

impl Client {
    /// Opens a watch, in all namespaces if `namespace` is empty. `query` starts with `?`.
    pub(crate) async fn watch(
        &self,
        kind: &Kind,
        namespace: &str,
        query: &str,
        accept: &'static str,
    ) -> Result<Watch, ApiError> {
        let mut call = ApiRequest::new(Method::GET, kind.path(namespace) + query, accept);
        call.is_rate_limited = false;
        let response = self.send(&call).await?;
        let encoding = negotiation::response_encoding(response.headers());
        Ok(Watch { body: response.into_body(), frames: Frames::new(encoding) })
    }
}

impl Watch {
    /// Returns the encoding of the frames and their objects.
    pub(crate) fn encoding(&self) -> Encoding {
        self.frames.encoding()
    }

    /// Returns the next frame, or `None` at the regular end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, WatchError> {
        loop {
            if let Some(frame) = self.frames.next_frame()? {
                return Ok(Some(frame));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.frames.push(data);
                    }
                }
                Some(Err(error)) => {
                    return Err(WatchError::Transport(super::full_text(&*error).into()));
                }
                // A server that shuts down may send an incomplete frame. The next watch continues after the
                // last complete frame.
                None => return Ok(None),
            }
        }
    }
}
