//! What memory is in use. The system's allocator, which takes the least memory, does not know who asked for what: a program
//! that is to tell is built with the feature `heap-profile`, and started with jemalloc's sampling on.

use bytes::Bytes;
use evenkeel_runtime::serve::plain;
use http::{HeaderValue, Response, StatusCode};

/// With the default of the library's sampling, a sample each half a megabyte.
#[cfg(feature = "heap-profile")]
pub(super) async fn answer() -> Response<Bytes> {
    let Some(control) = jemalloc_pprof::PROF_CTL.as_ref() else {
        return cannot(
            "Memory is not sampled: start the program with _RJEM_MALLOC_CONF=prof:true in its environment",
        );
    };
    let control = control.clone().lock_owned().await;
    // Looking up names takes a while, in which the controllers go on.
    let dumped = tokio::task::spawn_blocking(move || {
        let mut control = control;
        control.dump_pprof().map_err(|error| format!("{error:#}"))
    });
    match dumped.await {
        Ok(Ok(profile)) => super::bytes_of("heap", profile),
        Ok(Err(error)) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

#[cfg(not(feature = "heap-profile"))]
pub(super) async fn answer() -> Response<Bytes> {
    cannot("This program was built without the feature heap-profile: its allocator does not sample")
}

fn cannot(text: &str) -> Response<Bytes> {
    let mut response = plain(StatusCode::NOT_IMPLEMENTED, text);
    response.headers_mut().insert("x-go-pprof", HeaderValue::from_static("1"));
    response
}
