//! Priority and fairness stage: acquires the seats of a request.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::api::Api;
use crate::flow::{self, Admission, ObjectStats, Rejection, RequestDigest};
use crate::resource::Path;
use crate::response::{Body, answer};

/// Acquires the seats of a request, or waits for them. The request releases them when its response is written. A watch
/// releases them when it begins.
///
/// Upstream: `WithPriorityAndFairness`.
pub(super) async fn limit(
    api: &Api,
    request: &RequestDigest<'_>,
    parsed: &Path<'_>,
    deadline: Option<Duration>,
) -> Admission {
    let stats = || {
        let Path::Resource(target) = parsed else { return None };
        let (count, average_size) = api.store.size(&target.resource.resource_prefix);
        Some(ObjectStats { count: count as u64, average_size: average_size as u64 })
    };
    api.flows.start(request, stats, flow::wait_limit(deadline)).await
}

/// Returns the response to a rejected request.
///
/// Upstream: `tooManyRequests`.
pub(super) fn too_many_requests(rejection: &Rejection) -> Response<Body> {
    let text = "Too many requests, please try again later.\n";
    let mut response = answer(
        StatusCode::TOO_MANY_REQUESTS,
        HeaderValue::from_static("text/plain; charset=utf-8"),
        Body::whole(Bytes::from_static(text.as_bytes())),
    );
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(rejection.retry_after));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    rejection.set_uid_headers(headers);
    response
}
