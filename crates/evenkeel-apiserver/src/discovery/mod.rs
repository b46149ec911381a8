//! `/api`, `/apis` and below: which groups, versions and resources there are, in the old form and the aggregated one.

use bytes::Bytes;
use http::{HeaderMap, Response};

use crate::api::Api;

/// Answers a GET of a discovery path; `None` where `path` is none. An answer may be a 404 or a 406.
pub(crate) fn serve(_api: &Api, _path: &str, _headers: &HeaderMap) -> Option<Response<Bytes>> {
    None
}
