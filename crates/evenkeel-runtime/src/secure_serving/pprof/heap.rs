//! Profile of the memory in use. The system's allocator needs the least memory, but does not record the
//! callers. A real profile therefore needs the feature `heap-profile` with jemalloc's sampling.

use super::plain;
#[cfg(not(feature = "heap-profile"))]
use super::profile::{Frame, Profile};
use bytes::Bytes;
#[cfg(feature = "heap-profile")]
use http::HeaderValue;
use http::{Response, StatusCode};

/// Returns jemalloc's heap profile, which by default has one sample for every 512 KiB.
#[cfg(feature = "heap-profile")]
pub(super) async fn answer() -> Response<Bytes> {
    let Some(control) = jemalloc_pprof::PROF_CTL.as_ref() else {
        return not_sampled(
            "Memory is not sampled: start the program with _RJEM_MALLOC_CONF=prof:true in its environment",
        );
    };
    let control = control.clone().lock_owned().await;
    // Resolving symbols takes long, and must not delay the controllers.
    #[expect(clippy::disallowed_methods, reason = "its panic is the answer's error")]
    let dumped = tokio::task::spawn_blocking(move || {
        let mut control = control;
        control.dump_pprof().map_err(|error| format!("{error:#}"))
    });
    match dumped.await {
        Ok(Ok(profile)) => super::attachment("heap", profile),
        Ok(Err(error)) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Answers with the process's whole memory as one sample, whose origin is unknown.
#[cfg(not(feature = "heap-profile"))]
pub(super) async fn answer() -> Response<Bytes> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(bytes) = resident(&status) else {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "The process' memory cannot be read");
    };
    let origin = "all memory of the process (built without the feature heap-profile: the allocator does not sample)";
    let mut profile = Profile::new(&[("inuse_space", "bytes")], ("space", "bytes"), 1);
    profile.sample(&[vec![Frame::named(origin)]], &[bytes], &[]);
    super::file("heap", &profile)
}

/// Returns the resident memory in bytes, from a process's `/proc/…/status`.
#[cfg(not(feature = "heap-profile"))]
fn resident(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(feature = "heap-profile")]
fn not_sampled(text: &str) -> Response<Bytes> {
    let mut response = plain(StatusCode::NOT_IMPLEMENTED, text);
    response.headers_mut().insert("x-go-pprof", HeaderValue::from_static("1"));
    response
}

#[cfg(all(test, not(feature = "heap-profile")))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t   12 kB\nThreads:\t1\n"), Some(12 * 1024));
        assert_eq!(resident("Name:\tx\n"), None);
    }
}
