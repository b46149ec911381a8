//! Sending of requests, with rate limit, leader fence, metrics and retries.
//!
//! Upstream: `withRetry`.

use super::{
    ApiError, Client, Status, leader_fence::run_fenced, negotiation, transport::ResponseBody,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use std::{error::Error, io, time::Duration};
use tower::BoxError;

/// Maximum number of retries of a request (client-go's `maxRetries`).
const MAX_RETRIES: u32 = 10;

/// Delay before a GET that lost its connection is sent again, as in client-go.
const LOST_CONNECTION_DELAY: Duration = Duration::from_secs(1);

/// Maximum length in bytes of a response with one object: that of a watch event, which has one, too.
const MAX_OBJECT_BYTES: usize = evenkeel_api::watch::MAX_FRAME;

/// Maximum length in bytes that an item adds to a page of a list: etcd's limit of a request, with a third for JSON.
const MAX_ITEM_BYTES: usize = 2 << 20;

/// Maximum length in bytes of a list without a limit of items: a million objects of 8 KiB.
const MAX_LIST_BYTES: usize = 8 << 30;

/// Maximum length in bytes of the body of an error, and of a body that is only read to reuse its connection.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// Request that can be sent repeatedly.
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// Additional headers of raw requests.
    pub(crate) headers: HeaderMap,
    /// Whether the rate limit applies. It does not apply to watches, which are few and must not wait for writes.
    pub(crate) is_rate_limited: bool,
    /// Maximum length of the response in bytes. A longer response is a transport error: a server that never ends a
    /// response must not take this process's memory.
    max_response_bytes: usize,
}

impl ApiRequest {
    pub(crate) fn new(method: Method, target: String, accept: &'static str) -> Self {
        Self {
            method,
            target,
            accept,
            content_type: "",
            body: Bytes::new(),
            headers: HeaderMap::new(),
            is_rate_limited: true,
            max_response_bytes: MAX_OBJECT_BYTES,
        }
    }

    /// Permits the length of a list of at most `limit` items; 0 means any number.
    pub(crate) fn for_list(mut self, limit: u32) -> Self {
        let max_items = usize::try_from(limit).unwrap_or(usize::MAX);
        self.max_response_bytes = match max_items {
            0 => MAX_LIST_BYTES,
            _ => max_items.saturating_mul(MAX_ITEM_BYTES).clamp(MAX_OBJECT_BYTES, MAX_LIST_BYTES),
        };
        self
    }

    pub(crate) fn json(self, body: Bytes) -> Self {
        self.with_body("application/json", body)
    }

    pub(crate) fn with_body(mut self, content_type: &'static str, body: Bytes) -> Self {
        self.content_type = content_type;
        self.body = body;
        self
    }

    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Builds the HTTP request. `only_json` is whether the response must not be protobuf.
    fn to_http(
        &self,
        user_agent: &HeaderValue,
        only_json: bool,
    ) -> Result<Request<Body>, ApiError> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.parse().map_err(|error: http::uri::InvalidUri| {
            ApiError::Request { path: self.path().into(), reason: error.to_string().into() }
        })?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(header::USER_AGENT, user_agent.clone());
        #[cfg(feature = "otel")]
        crate::telemetry::inject(headers);
        if !self.accept.is_empty() {
            let accept =
                if only_json { negotiation::without_protobuf(self.accept) } else { self.accept };
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        }
        if !self.content_type.is_empty() && !self.body.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        Ok(request)
    }

    pub(crate) fn transport_error(
        &self,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> ApiError {
        ApiError::Transport {
            method: self.method.clone(),
            path: self.path().into(),
            source: source.into(),
        }
    }
}

impl Client {
    /// Sends a request and reads the whole response. Returns an error status as an error.
    pub(crate) fn exchange<'a>(
        &'a self,
        call: &'a ApiRequest,
    ) -> BoxFuture<'a, Result<Response<Bytes>, ApiError>> {
        Box::pin(async move {
            let start = self.shared.clock.instant();
            let result = self.send_traced(call).await;
            if let Some(metrics) = &self.shared.metrics {
                metrics.observe_latency(&call.method, start.elapsed());
            }
            result
        })
    }

    /// Sends a request within a span of its own, if this process exports traces.
    #[cfg(feature = "otel")]
    async fn send_traced(&self, call: &ApiRequest) -> Result<Response<Bytes>, ApiError> {
        use tracing::Instrument as _;
        let span = crate::telemetry::request_span(&call.method, call.path());
        let result = self.send_and_read(call).instrument(span.clone()).await;
        let code = match &result {
            Ok(response) => Some(response.status()),
            Err(error) => StatusCode::from_u16(error.code()).ok(),
        };
        crate::telemetry::record_response(&span, code);
        result
    }

    #[cfg(not(feature = "otel"))]
    async fn send_traced(&self, call: &ApiRequest) -> Result<Response<Bytes>, ApiError> {
        self.send_and_read(call).await
    }

    async fn send_and_read(&self, call: &ApiRequest) -> Result<Response<Bytes>, ApiError> {
        let response = self.send(call).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, call.max_response_bytes).collect().await;
        let bytes = body.map_err(|error| call.transport_error(error))?.to_bytes();
        if let Some(metrics) = &self.shared.metrics {
            metrics.observe_response_size(&call.method, bytes.len());
        }
        Ok(Response::from_parts(parts, bytes))
    }

    /// Sends a request. Retries it after a 429 or 5xx response with `Retry-After`, or if a GET loses its connection.
    /// The caller reads the body of a successful response.
    pub(crate) async fn send(&self, call: &ApiRequest) -> Result<Response<ResponseBody>, ApiError> {
        let mut attempt = 0;
        loop {
            self.throttle(call).await;
            let result = self.send_once(call).await?;
            self.count_attempt(call, &result, attempt > 0);
            attempt += 1;
            let delay = if attempt <= MAX_RETRIES { retry_delay(call, &result) } else { None };
            match (delay, result) {
                (Some(delay), result) => {
                    if let Ok(response) = result {
                        // Read the body to its end, so that the connection can be reused.
                        let body = Limited::new(response.into_body(), MAX_ERROR_BYTES);
                        let _ = body.collect().await;
                    }
                    tracing::debug!(path = call.path(), attempt, wait = ?delay, "sending a request again");
                    tokio::time::sleep(delay).await;
                }
                (None, Ok(response)) if response.status().is_success() => return Ok(response),
                (None, Ok(response)) => return Err(status_error(response).await),
                (None, Err(error)) => return Err(call.transport_error(error)),
            }
        }
    }

    /// Sends a request once. Checks the leader fence after all waits.
    async fn send_once(
        &self,
        call: &ApiRequest,
    ) -> Result<Result<Response<ResponseBody>, BoxError>, ApiError> {
        self.send_fenced(call.to_http(&self.user_agent, self.shared.json)?).await
    }

    /// Sends a request, a write only while the leader fence is open.
    pub(super) async fn send_fenced(
        &self,
        request: Request<Body>,
    ) -> Result<Result<Response<ResponseBody>, BoxError>, ApiError> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let Some(fence) = self.fence.as_ref().filter(|_| !is_read) else {
            return Ok(self.transmit(request).await);
        };
        let (method, path) = (request.method().clone(), request.uri().path().into());
        let sent = run_fenced(fence, self.transmit(request)).await;
        sent.ok_or(ApiError::Fenced { method, path })
    }

    /// Waits for the rate limit, if it applies.
    async fn throttle(&self, call: &ApiRequest) {
        let Some(limiter) = self.limiter.as_ref().filter(|_| call.is_rate_limited) else { return };
        let waited = limiter.wait().await;
        if let Some(metrics) = &self.shared.metrics {
            metrics.observe_rate_limiter_latency(&call.method, waited);
        }
    }

    fn count_attempt(
        &self,
        call: &ApiRequest,
        result: &Result<Response<ResponseBody>, BoxError>,
        is_retry: bool,
    ) {
        let Some(metrics) = &self.shared.metrics else { return };
        let code = result.as_ref().ok().map(Response::status);
        metrics.count_attempt(code, &call.method, is_retry);
        metrics.observe_request_size(&call.method, call.body.len());
    }
}

/// Returns the error of an unsuccessful response.
async fn status_error(response: Response<ResponseBody>) -> ApiError {
    let (parts, body) = response.into_parts();
    match Limited::new(body, MAX_ERROR_BYTES).collect().await {
        Ok(body) => ApiError::Status(Box::new(negotiation::decode_status(
            &parts.headers,
            parts.status.as_u16(),
            &body.to_bytes(),
        ))),
        Err(_) => {
            ApiError::Status(Box::new(Status { code: parts.status.as_u16(), ..Status::default() }))
        }
    }
}

/// Returns the delay before a retry, or `None` without a retry.
fn retry_delay(
    call: &ApiRequest,
    result: &Result<Response<ResponseBody>, BoxError>,
) -> Option<Duration> {
    match result {
        Ok(response) => {
            let status = response.status();
            let is_retryable = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            if is_retryable { negotiation::retry_after(response.headers()) } else { None }
        }
        Err(error) if call.method == Method::GET && is_lost_connection(error) => {
            Some(LOST_CONNECTION_DELAY)
        }
        Err(_) => None,
    }
}

/// Returns whether the connection broke during the request, for example because a server restarts.
fn is_lost_connection(error: &BoxError) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(&**error);
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
            return matches!(
                io.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
            );
        }
        if let Some(hyper) = cause.downcast_ref::<hyper::Error>()
            && (hyper.is_incomplete_message() || hyper.is_canceled() || hyper.is_closed())
        {
            return true;
        }
        next = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_be_as_long_as_its_items() {
        let max = |limit| {
            let call = ApiRequest::new(Method::GET, String::new(), "").for_list(limit);
            call.max_response_bytes >> 20
        };
        assert_eq!([max(1), max(500), max(100_000), max(0)], [64, 1000, 8192, 8192]);
    }
}
