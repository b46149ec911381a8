//! `/openapi/v2` and `/openapi/v3`: the schemas of everything that is served.

use bytes::Bytes;
use http::{HeaderMap, Response};

use crate::api::Api;

/// Answers a GET of an OpenAPI path; `None` where `path` is none.
pub(crate) fn serve(
    _api: &Api,
    _path: &str,
    _headers: &HeaderMap,
    _query: &[(String, String)],
) -> Option<Response<Bytes>> {
    None
}
