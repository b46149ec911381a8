//! What memory is in use. The system's allocator, which takes the least memory, does not know who asked for what.

use bytes::Bytes;
use evenkeel_runtime::serve::plain;
use http::{HeaderValue, Response, StatusCode};

pub(super) async fn answer() -> Response<Bytes> {
    let text = "This program was built without heap profiles: its allocator does not sample";
    let mut response = plain(StatusCode::NOT_IMPLEMENTED, text);
    response.headers_mut().insert("x-go-pprof", HeaderValue::from_static("1"));
    response
}
