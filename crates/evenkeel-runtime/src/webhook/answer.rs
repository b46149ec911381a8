//! Routes HTTP requests from a path and a body to a handler, within limits.

use super::{
    AdmissionResponse,
    conversion::{self, Converters},
    metrics::Metrics,
    request,
    typed::AdmissionHandler,
};
use crate::{clock::Clock, response, tasks::catch_panic};
use bytes::{Bytes, BytesMut};
use evenkeel_api::duration;
use http::{Request, Response, StatusCode, request::Parts};
use http_body::Body;
use http_body_util::BodyExt as _;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Path of the conversion webhook.
pub(super) const CONVERT: &str = "/convert";

/// Maximum size of an admission request: two objects of 3 MiB each, and the other fields.
///
/// Upstream: `maxRequestSize`.
const MAX_ADMISSION_SIZE: usize = 7 * 1024 * 1024;
/// Maximum size of a conversion request, which may hold all objects of a kind. Upstream has no limit.
const MAX_CONVERSION_SIZE: usize = 128 * 1024 * 1024;
/// Maximum size of the bodies of all requests in flight, in KiB.
const MAX_KIB_IN_FLIGHT: usize = 256 * 1024;

/// Timeout of a request that names none. It equals the default of `timeoutSeconds`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Upper bound of the timeout. It equals the maximum of `timeoutSeconds`.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Handler of a path.
#[derive(Clone)]
enum Route {
    Admission(AdmissionHandler),
    Conversion,
}

/// State that the clones of a server share.
pub(super) struct Routes {
    routes: RwLock<BTreeMap<String, Route>>,
    converters: RwLock<Converters>,
    /// Clock and metrics of the manager.
    instruments: OnceLock<(Clock, Metrics)>,
    /// Permits for KiB of bodies.
    body_budget: Arc<Semaphore>,
}

impl Default for Routes {
    fn default() -> Self {
        Self {
            routes: RwLock::default(),
            converters: RwLock::default(),
            instruments: OnceLock::new(),
            body_budget: Arc::new(Semaphore::new(MAX_KIB_IN_FLIGHT)),
        }
    }
}

impl Routes {
    /// Adds the handler of a path.
    ///
    /// # Panics
    /// Panics if the path has a handler and `replaces` is false.
    pub(super) fn admit(&self, path: &str, handler: AdmissionHandler, replaces: bool) {
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        let earlier = routes.insert(path.to_owned(), Route::Admission(handler));
        drop(routes);
        assert!(earlier.is_none() || replaces, "the webhook path {path} is registered twice");
        if let Some((_, metrics)) = self.instruments.get() {
            metrics.expose(path);
        }
    }

    /// Changes the conversions, and serves them.
    pub(super) fn convert(&self, change: impl FnOnce(&mut Converters)) {
        change(&mut self.converters.write().unwrap_or_else(PoisonError::into_inner));
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.insert(CONVERT.to_owned(), Route::Conversion);
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Sets the clock and the metrics. Only the first call has an effect.
    pub(super) fn instrument(&self, clock: Clock, metrics: Metrics) {
        self.paths().iter().for_each(|path| metrics.expose(path));
        let _ = self.instruments.set((clock, metrics));
    }

    /// Answers a request.
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Response<Bytes>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let route = self.routes.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        let Some(route) = route else {
            return response::plain(StatusCode::NOT_FOUND, "404 page not found");
        };
        let instruments = self.instruments.get();
        let in_flight = instruments.map(|(clock, metrics)| (clock.instant(), metrics.begin(path)));
        let timeout = timeout_of(parts.uri.query().unwrap_or_default());
        let answer = tokio::time::timeout(timeout, self.respond(&route, &parts, body)).await;
        let answer = answer.unwrap_or_else(|_| {
            tracing::warn!(webhook = path, ?timeout, "a request was not answered in time");
            let message = format!("the webhook {path} did not answer within {timeout:?}");
            failure(StatusCode::GATEWAY_TIMEOUT, "Timeout", &message)
        });
        if let (Some((clock, metrics)), Some((start, _))) = (instruments, &in_flight) {
            let took = clock.instant().saturating_duration_since(*start);
            metrics.record_response(path, answer.status(), took.as_secs_f64());
        }
        answer
    }

    async fn respond<B>(&self, route: &Route, parts: &Parts, body: B) -> Response<Bytes>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let limit = match route {
            Route::Admission(_) => MAX_ADMISSION_SIZE,
            Route::Conversion => MAX_CONVERSION_SIZE,
        };
        let body = read_body(body, limit, &self.body_budget).await;
        match route {
            Route::Admission(handler) => self.respond_admission(handler, parts, body).await,
            Route::Conversion => self.respond_conversion(parts, body).await,
        }
    }

    async fn respond_admission(
        &self,
        handler: &AdmissionHandler,
        parts: &Parts,
        body: Result<ReadBody, BodyError>,
    ) -> Response<Bytes> {
        let path = parts.uri.path();
        let refuse = |code, message: &str| {
            tracing::warn!(webhook = path, reason = message, "a request cannot be read");
            json_answer(
                StatusCode::OK,
                &AdmissionResponse::errored(code, message).into_review(None),
            )
        };
        let body = match body {
            Ok(body) => body,
            Err(error @ BodyError::Busy) => return error.failure(),
            Err(error) => return refuse(error.code(), &error.to_string()),
        };
        let request = match request::decode_review(&parts.headers, &body.bytes) {
            Ok(request) => request,
            Err(reason) => return refuse(StatusCode::BAD_REQUEST, &reason),
        };
        let kept = request.clone();
        match catch_panic(async { handler(request).await }).await {
            Ok(response) => {
                let (namespace, name) = (&*kept.namespace, &*kept.name);
                let allowed = response.is_allowed();
                tracing::debug!(webhook = path, namespace, name, allowed, "answered");
                json_answer(StatusCode::OK, &response.into_review(Some(&kept)))
            }
            Err(panic) => self.panicked(path, &panic, |metrics| &metrics.panics),
        }
    }

    async fn respond_conversion(
        &self,
        parts: &Parts,
        body: Result<ReadBody, BodyError>,
    ) -> Response<Bytes> {
        let body = match body {
            Ok(body) => body,
            Err(error) => return error.failure(),
        };
        let request = match conversion::decode_review(&parts.headers, &body.bytes) {
            Ok(request) => request,
            Err(reason) => return failure(StatusCode::BAD_REQUEST, "BadRequest", &reason),
        };
        let converters = self.converters.read().unwrap_or_else(PoisonError::into_inner).clone();
        match catch_panic(converters.answer(&request)).await {
            Ok(review) => json_answer(StatusCode::OK, &review),
            Err(panic) => {
                self.panicked(parts.uri.path(), &panic, |metrics| &metrics.conversion_panics)
            }
        }
    }

    /// Returns the response after a panic. Its code lets the API server apply the webhook's `failurePolicy`.
    fn panicked(
        &self,
        path: &str,
        panic: &str,
        counter: fn(&Metrics) -> &prometheus::IntCounter,
    ) -> Response<Bytes> {
        tracing::error!(webhook = path, panic, "a webhook panicked");
        if let Some((_, metrics)) = self.instruments.get() {
            counter(metrics).inc();
        }
        let message = format!("the webhook {path} panicked: {panic} [recovered]");
        failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message)
    }
}

/// Returns the timeout of a request, from the `timeout` that the API server adds to the URL.
fn timeout_of(query: &str) -> Duration {
    let named = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let nanoseconds = named.and_then(|text| duration::nanoseconds(text).ok());
    match nanoseconds.and_then(|nanoseconds| u64::try_from(nanoseconds).ok()) {
        None | Some(0) => DEFAULT_TIMEOUT,
        Some(nanoseconds) => Duration::from_nanos(nanoseconds).min(MAX_TIMEOUT),
    }
}

/// Body of a request, with its share of the budget.
struct ReadBody {
    bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

/// Reason why a body cannot be read.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("request entity is too large; limit is {0} bytes")]
    TooLarge(usize),
    #[error("the requests in flight are too large together; try again later")]
    Busy,
    #[error("the body cannot be read: {0}")]
    Broken(String),
}

impl BodyError {
    fn code(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }

    fn failure(&self) -> Response<Bytes> {
        let reason = match self {
            Self::TooLarge(_) => "RequestEntityTooLarge",
            Self::Busy => "TooManyRequests",
            Self::Broken(_) => "BadRequest",
        };
        failure(self.code(), reason, &self.to_string())
    }
}

/// Reads a body of at most `limit` bytes, within the budget of all requests.
async fn read_body<B>(
    mut body: B,
    limit: usize,
    budget: &Arc<Semaphore>,
) -> Result<ReadBody, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    let (mut bytes, mut share) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
        let Ok(chunk) = frame.into_data() else { continue };
        if chunk.len() > limit - bytes.len() {
            return Err(BodyError::TooLarge(limit));
        }
        bytes.extend_from_slice(&chunk);
        let missing = bytes.len().div_ceil(1024)
            - share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if missing == 0 {
            continue;
        }
        let missing = u32::try_from(missing).map_err(|_| BodyError::TooLarge(limit))?;
        let more =
            Arc::clone(budget).try_acquire_many_owned(missing).map_err(|_| BodyError::Busy)?;
        match &mut share {
            Some(share) => share.merge(more),
            None => share = Some(more),
        }
    }
    Ok(ReadBody { bytes: bytes.freeze(), _share: share })
}

/// Returns a failure as `metav1.Status`, whose message the API server shows.
fn failure(code: StatusCode, reason: &str, message: &str) -> Response<Bytes> {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    json_answer(code, &status)
}

fn json_answer(code: StatusCode, body: &serde_json::Value) -> Response<Bytes> {
    response::answer(code, "application/json", body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs_are_bounded() {
        for (query, seconds) in [
            ("", 10.0),
            ("timeout=5s", 5.0),
            ("a=b&timeout=500ms", 0.5),
            ("timeout=1m30s", 30.0),
            ("timeout=0s", 10.0),
            ("timeout=-5s", 10.0),
            ("timeout=soon", 10.0),
        ] {
            assert_eq!(timeout_of(query).as_secs_f64(), seconds, "{query}");
        }
    }

    #[tokio::test]
    async fn bodies_share_a_budget() {
        let budget = Arc::new(Semaphore::new(3));
        let body = |size: usize| http_body_util::Full::new(Bytes::from(vec![b' '; size]));
        let first = read_body(body(2000), 4096, &budget).await.unwrap();
        assert_eq!(budget.available_permits(), 1);
        assert!(matches!(read_body(body(1025), 4096, &budget).await, Err(BodyError::Busy)));
        assert!(matches!(
            read_body(body(5000), 4096, &budget).await,
            Err(BodyError::TooLarge(4096))
        ));
        drop(first);
        assert_eq!(read_body(body(2049), 4096, &budget).await.unwrap().bytes.len(), 2049);
        assert_eq!(budget.available_permits(), 3);
    }
}
