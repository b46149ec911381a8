//! CPU profile. framehop walks the stacks with the program's own unwind tables. The C library's unwinder cannot
//! pass a signal handler in a static program.

use super::{
    file, plain,
    profile::{Frame, Profile},
    seconds,
};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use pprof::{ProfilerGuardBuilder, Report, Symbol};
use std::time::{Duration, UNIX_EPOCH};

/// Samples per second, as in Go.
const FREQUENCY: i32 = 100;
/// Libraries whose stacks cannot be walked from a signal handler.
const NOT_WALKED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Records a profile for the number of seconds that the request names, and returns it.
pub(super) async fn answer(request: &Request<Bytes>) -> Response<Bytes> {
    match record_profile(seconds(request)).await {
        Ok(profile) => file("profile", &profile),
        // The usual cause is another running profile, because only one can run at a time.
        Err(error) => {
            let text = format!("Could not enable CPU profiling: {error}");
            plain(StatusCode::INTERNAL_SERVER_ERROR, &text)
        }
    }
}

async fn record_profile(time: Duration) -> Result<Profile, String> {
    let builder = ProfilerGuardBuilder::default().frequency(FREQUENCY).blocklist(&NOT_WALKED);
    let guard = builder.build().map_err(|error| error.to_string())?;
    tokio::time::sleep(time).await;
    // Resolving symbols takes long, and must not delay the controllers.
    #[expect(clippy::disallowed_methods, reason = "its panic is the answer's error")]
    let report = tokio::task::spawn_blocking(move || {
        let report = guard.report().build().map_err(|error| error.to_string())?;
        Ok::<_, String>(profile(&report))
    });
    report.await.map_err(|error| error.to_string())?
}

fn profile(report: &Report) -> Profile {
    // Nanoseconds between two samples.
    let period = 1_000_000_000 / i64::from(FREQUENCY);
    let types = [("samples", "count"), ("cpu", "nanoseconds")];
    let mut profile = Profile::new(&types, ("cpu", "nanoseconds"), period);
    let start = report.timing.start_time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    profile.set_time(nanoseconds(start), nanoseconds(report.timing.duration));
    for (frames, count) in &report.data {
        let locations = frames.frames.iter();
        let stack: Vec<Vec<Frame>> =
            locations.map(|inlined| inlined.iter().map(frame).collect()).collect();
        let stack = without_profiler_frames(&stack);
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        let labels = [("thread", frames.thread_name.as_str())];
        profile.sample(stack, &[count, count.saturating_mul(period)], &labels);
    }
    profile
}

/// Returns the interrupted stack, without the profiler's own frames.
fn without_profiler_frames(stack: &[Vec<Frame>]) -> &[Vec<Frame>] {
    const PROFILER: [&str; 4] = ["pprof::", "backtrace::", "perf_signal_handler", "__restore_rt"];
    let is_profiler = |frame: &Frame| PROFILER.iter().any(|name| frame.function.contains(name));
    let interrupted = stack.iter().position(|location| !location.iter().any(is_profiler));
    stack.get(interrupted.unwrap_or(stack.len())..).unwrap_or_default()
}

fn frame(symbol: &Symbol) -> Frame {
    Frame {
        function: symbol.name(),
        file: symbol.filename().into_owned(),
        line: symbol.lineno(),
        address: symbol.addr.map_or(0, |address| address.addr() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profilers_own_frames_are_left_out() {
        let location = |names: &[&str]| names.iter().map(|name| Frame::named(name)).collect();
        let stack: Vec<Vec<Frame>> = vec![
            location(&["backtrace::backtrace::trace_unsynchronized"]),
            location(&[
                "inlined",
                "<pprof::backtrace::backtrace_rs::Trace as pprof::backtrace::Trace>::trace",
            ]),
            location(&["work"]),
            location(&["evenkeel_runtime::secure_serving::pprof::cpu::answer"]),
        ];
        assert_eq!(without_profiler_frames(&stack), &stack[2..]);
        assert!(without_profiler_frames(&stack[..2]).is_empty());
    }
}
