//! `/debug/pprof/`: profiles that `go tool pprof` opens.
//!
//! The program samples CPU time a hundred times a second while it serves a request for a CPU profile, and never
//! otherwise. The profile `goroutine` counts tasks. A request for a profile that only Go's runtime has gets an error
//! with the reason.

mod cpu;
mod heap;
mod profile;
mod symbol;
mod tasks;

use super::{Routes, answer, plain};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use profile::Profile;
use std::time::Duration;

const ROOT: &str = "/debug/pprof/";

/// Profiles with their descriptions.
const PROFILES: [(&str, &str); 7] = [
    (
        "block",
        "Stack traces that led to blocking on synchronization primitives. Empty: this program does not record them.",
    ),
    ("cmdline", "The command line invocation of the current program"),
    ("goroutine", "Number of tasks by name. Use debug=1 as a query parameter to get them as text."),
    (
        "heap",
        "A sampling of memory allocations of live objects, or their sum if the program was built without heap profiling.",
    ),
    (
        "mutex",
        "Stack traces of holders of contended mutexes. Empty: this program does not record them.",
    ),
    (
        "profile",
        "CPU profile. You can specify the duration in the seconds GET parameter (default 30).",
    ),
    (
        "threadcreate",
        "Number of OS threads by name. Use debug=1 as a query parameter to get them as text.",
    ),
];

/// Adds `/debug/pprof/` and the paths below it.
#[must_use]
pub fn add_to(routes: Routes) -> Routes {
    // `/statusz` lists none of these paths. An exact path takes precedence over the prefix.
    routes
        .unlisted("/debug/pprof", |_| {
            let mut response = answer(
                StatusCode::FOUND,
                "text/html; charset=utf-8",
                "<a href=\"/debug/pprof/\">Found</a>.\n\n",
            );
            response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(ROOT));
            response
        })
        .under(ROOT, missing_profile)
        .unlisted("/debug/pprof/", |_| index())
        .unlisted("/debug/pprof/cmdline", |_| cmdline())
        .unlisted("/debug/pprof/symbol", symbol::answer)
        .unlisted("/debug/pprof/goroutine", |request| {
            count_profile(request, "goroutine", &tasks::tasks())
        })
        .unlisted("/debug/pprof/threadcreate", |request| {
            count_profile(request, "threadcreate", &tasks::threads())
        })
        .unlisted("/debug/pprof/block", |request| contention(request, "block"))
        .unlisted("/debug/pprof/mutex", |request| contention(request, "mutex"))
        .get_async("/debug/pprof/profile", |request| async move { cpu::answer(&request).await })
        .get_async("/debug/pprof/heap", |_| heap::answer())
        // Alias of `heap`, so the index omits it.
        .get_async("/debug/pprof/allocs", |_| heap::answer())
}

fn index() -> Response<Bytes> {
    let links =
        PROFILES.map(|(name, about)| format!("<li><a href=\"{name}\">{name}</a>: {about}</li>\n"));
    let text = format!(
        "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/<br>\n<ul>\n{}</ul>\n</body>\n</html>\n",
        links.concat()
    );
    answer(StatusCode::OK, "text/html; charset=utf-8", text)
}

/// Answers requests for profiles of Go's runtime, which are not available, and for unknown ones.
fn missing_profile(request: &Request<Bytes>) -> Response<Bytes> {
    let (code, text) = match request.uri().path().strip_prefix(ROOT) {
        Some("trace") => (StatusCode::NOT_IMPLEMENTED, "Execution traces are not supported"),
        _ => (StatusCode::NOT_FOUND, "Unknown profile"),
    };
    let mut response = plain(code, text);
    // With this header, Go's tool prints the text as the error.
    response.headers_mut().insert("x-go-pprof", HeaderValue::from_static("1"));
    response
}

fn cmdline() -> Response<Bytes> {
    match std::fs::read("/proc/self/cmdline") {
        Ok(mut line) => {
            // Remove the null byte after the last argument.
            line.pop();
            answer(StatusCode::OK, "text/plain; charset=utf-8", line)
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Answers with names and their counts, as a profile or as text.
fn count_profile(
    request: &Request<Bytes>,
    profile_name: &str,
    counts: &[(String, usize)],
) -> Response<Bytes> {
    if wants_text(request) {
        let total: usize = counts.iter().map(|(_, count)| count).sum();
        let lines = counts.iter().map(|(name, count)| format!("{count} @ {name}\n"));
        let text = format!("{profile_name} profile: total {total}\n{}", lines.collect::<String>());
        return answer(StatusCode::OK, "text/plain; charset=utf-8", text);
    }
    let (value_type, period) = ((profile_name, "count"), 1);
    let mut profile = Profile::new(&[value_type], value_type, period);
    for (name, count) in counts {
        // The name is the only frame of the only location.
        let stack = [vec![profile::Frame::named(name)]];
        let value = i64::try_from(*count).unwrap_or(i64::MAX);
        let labels = [];
        profile.sample(&stack, &[value], &labels);
    }
    file(profile_name, &profile)
}

/// Answers with a profile without samples, as Go programs do while block and mutex profiling are off.
fn contention(request: &Request<Bytes>, profile_name: &str) -> Response<Bytes> {
    if wants_text(request) {
        // Go's runtime heads the profile `block` with `contention`.
        let heading = if profile_name == "mutex" { "mutex" } else { "contention" };
        let text = format!("--- {heading}:\ncycles/second=1000000000\n");
        return answer(StatusCode::OK, "text/plain; charset=utf-8", text);
    }
    let value_types = [("contentions", "count"), ("delay", "nanoseconds")];
    let (period_type, period) = (("contentions", "count"), 1);
    file(profile_name, &Profile::new(&value_types, period_type, period))
}

/// Returns whether the request asks for text instead of a profile (`debug=1`).
fn wants_text(request: &Request<Bytes>) -> bool {
    parameter(request, "debug").is_some_and(|debug| debug != "0")
}

/// Answers with a profile as a file to download.
fn file(name: &str, profile: &Profile) -> Response<Bytes> {
    match profile.gzip() {
        Ok(bytes) => attachment(name, bytes),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn attachment(file_name: &str, bytes: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = answer(StatusCode::OK, "application/octet-stream", bytes);
    let disposition = format!("attachment; filename=\"{file_name}\"");
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}

/// Returns the first query parameter of this name.
fn parameter<'a>(request: &'a Request<Bytes>, name: &str) -> Option<&'a str> {
    let mut pairs = request.uri().query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns the duration of a profile. As in Go, the default is 30 s, which also replaces invalid values.
fn seconds(request: &Request<Bytes>) -> Duration {
    let seconds = parameter(request, "seconds").and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.filter(|seconds: &u64| *seconds > 0).unwrap_or(30))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(uri: &str) -> Request<Bytes> {
        Request::get(uri).body(Bytes::new()).unwrap()
    }

    #[test]
    fn parameters_are_read_as_go_does() {
        let table = [
            ("", 30),
            ("?seconds=5", 5),
            ("?seconds=x", 30),
            ("?a=b&seconds=0", 30),
            ("?seconds=-1", 30),
        ];
        for (query, expected) in table {
            assert_eq!(seconds(&get(&format!("/{query}"))).as_secs(), expected, "{query}");
        }
    }

    #[test]
    fn unavailable_profile_is_answered_with_a_reason() {
        for (name, code) in [("trace", 501), ("zzz", 404)] {
            let response = missing_profile(&get(&format!("{ROOT}{name}")));
            assert_eq!(response.status().as_u16(), code, "{name}");
            assert_eq!(response.headers()["x-go-pprof"], "1");
        }
    }

    #[test]
    fn contention_profiles_are_empty() {
        let text = contention(&get("/?debug=1"), "mutex");
        assert_eq!(text.body(), "--- mutex:\ncycles/second=1000000000\n");
        let profile = contention(&get("/"), "block");
        assert_eq!((profile.status(), &profile.body()[..2]), (StatusCode::OK, &[0x1f, 0x8b][..]));
    }

    #[test]
    fn counts_are_text_or_a_profile() {
        let all = [("watch pods".to_owned(), 1), ("worker".to_owned(), 5)];
        let text = count_profile(&get("/?debug=1"), "goroutine", &all);
        assert_eq!(text.body(), "goroutine profile: total 6\n1 @ watch pods\n5 @ worker\n");
        let profile = count_profile(&get("/"), "goroutine", &all);
        assert_eq!(profile.body()[..2], [0x1f, 0x8b], "gzip");
    }
}
