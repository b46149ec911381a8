//! Seats of a request while its response is written.

use std::sync::Arc;

use evenkeel_listener::AbortResponse;
use http::{Response, StatusCode};

use super::deadline::WRITE_TIMEOUT;
use crate::api::Api;
use crate::flow::Permit;
use crate::metrics::{InFlight, Labels};
use crate::response::Body;

/// Holds the seats of a request until its response is written. If the client does not read the response within a
/// minute, the server aborts it and releases the seats. A short response does not need this, because it is written
/// immediately.
///
/// Upstream: `WithTimeoutForNonLongRunningRequests`, `ErrAbortHandler`.
pub(super) fn hold_until_written(
    api: &Arc<Api>,
    held: (Option<Permit>, InFlight),
    labels: Labels,
    response: &mut Response<Body>,
) {
    let abort = AbortResponse::default();
    response.extensions_mut().insert(abort.clone());
    let writing = response.body_mut().hold_until_written(held);
    let weak = Arc::downgrade(api);
    let timer = async move {
        if writing.timed_out(WRITE_TIMEOUT).await {
            abort.abort();
            if let Some(api) = weak.upgrade() {
                api.metrics
                    .record_termination(labels.clone(), StatusCode::GATEWAY_TIMEOUT.as_u16());
                api.metrics.record_abort(labels);
            }
        }
    };
    api.tasks.spawn_brief(timer);
}
