//! Deadlines of requests.
//!
//! Upstream: `k8s.io/apiserver/pkg/endpoints/filters/request_deadline.go`.

use crate::request::{Query, RequestInfo};
use crate::resource::is_connection;
use evenkeel_api::duration;
use evenkeel_apimachinery::status::StatusError;
use std::time::Duration;

/// Maximum duration of a request, even if the client requests a longer timeout: upstream's default of
/// `--request-timeout`.
const MAX_REQUEST_DURATION: Duration = Duration::from_secs(60);

/// Time that a client has to read a response that is not a stream.
pub(super) const WRITE_TIMEOUT: Duration = MAX_REQUEST_DURATION;

/// Returns the time until the response must begin: the query's `timeout`, at most a minute. A watch or a log must begin
/// within a minute, and then lasts until the client disconnects. Connections to pods and nodes have no limit.
pub(super) fn of(info: &RequestInfo<'_>, query: &Query) -> Result<Option<Duration>, StatusError> {
    if info.is_resource && is_connection(info.subresource) {
        return Ok(None);
    }
    if info.verb == "watch" || (info.is_resource && info.subresource == "log") {
        return Ok(Some(MAX_REQUEST_DURATION));
    }
    let text = query.get("timeout");
    if text.is_empty() {
        return Ok(Some(MAX_REQUEST_DURATION));
    }
    let nanos = duration::nanoseconds(text).map_err(|why| {
        StatusError::bad_request(format!("invalid timeout specified in the request URL - {why}"))
    })?;
    // Zero and negative timeouts have no effect.
    Ok(Some(match u64::try_from(nanos) {
        Ok(nanos) if nanos > 0 => Duration::from_nanos(nanos).min(MAX_REQUEST_DURATION),
        _ => MAX_REQUEST_DURATION,
    }))
}

/// Returns the error of a request that exceeded its deadline.
pub(super) fn deadline_exceeded() -> StatusError {
    StatusError::timeout("request did not complete within the allotted timeout", 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn what_a_request_may_take() {
        let second = Duration::from_secs(1);
        for (path, query, wanted) in [
            ("/api/v1/pods", "", Some(MAX_REQUEST_DURATION)),
            ("/api/v1/pods", "timeout=1s", Some(second)),
            ("/api/v1/pods", "timeout=3m", Some(MAX_REQUEST_DURATION)),
            ("/api/v1/pods", "timeout=0s", Some(MAX_REQUEST_DURATION)),
            ("/api/v1/pods", "timeout=-5s", Some(MAX_REQUEST_DURATION)),
            ("/api/v1/pods", "watch=1&timeout=1s", Some(MAX_REQUEST_DURATION)),
            ("/api/v1/namespaces/a/pods/p/log", "timeout=1s", Some(MAX_REQUEST_DURATION)),
            ("/api/v1/namespaces/a/pods/p/exec", "timeout=1s", None),
            ("/api/v1/namespaces/a/pods/p/status", "timeout=1s", Some(second)),
            ("/version", "timeout=1s", Some(second)),
        ] {
            let query = Query::parse(Some(query));
            let found = of(&RequestInfo::of(&Method::GET, path, &query), &query).unwrap();
            assert_eq!(found, wanted, "{path} {query:?}");
        }
    }

    #[test]
    fn a_timeout_that_is_none_is_named() {
        let query = Query::parse(Some("timeout=invalid"));
        let error = of(&RequestInfo::of(&Method::GET, "/version", &query), &query).unwrap_err();
        let error: serde_json::Value = serde_json::from_slice(&error.to_json()).unwrap();
        let message =
            "invalid timeout specified in the request URL - time: invalid duration \"invalid\"";
        assert_eq!((&error["code"], &error["message"]), (&400.into(), &message.into()));
    }
}
