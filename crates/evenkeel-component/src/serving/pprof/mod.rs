//! `/debug/pprof/`: profiles that `go tool pprof` opens.
//!
//! CPU time is sampled a hundred times a second during a request, and costs nothing otherwise. Tasks take the
//! place of upstream's goroutines. A profile that only Go's runtime has is answered with the reason why it is
//! missing.

mod cpu;
mod heap;
mod profile;
mod symbol;
mod tasks;

use crate::secure_serving::{Routes, answer, plain};
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

pub(super) fn add_to(routes: Routes) -> Routes {
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
        .under(ROOT, other)
        .unlisted("/debug/pprof/", |_| index())
        .unlisted("/debug/pprof/cmdline", |_| cmdline())
        .unlisted("/debug/pprof/symbol", symbol::answer)
        .unlisted("/debug/pprof/goroutine", |request| {
            counted(request, "goroutine", &tasks::tasks())
        })
        .unlisted("/debug/pprof/threadcreate", |request| {
            counted(request, "threadcreate", &tasks::threads())
        })
        .unlisted("/debug/pprof/block", |request| contention(request, "block"))
        .unlisted("/debug/pprof/mutex", |request| contention(request, "mutex"))
        .slow("/debug/pprof/profile", |request| async move { cpu::answer(&request).await })
        .slow("/debug/pprof/heap", |_| heap::answer())
        .slow("/debug/pprof/allocs", |_| heap::answer())
}

fn index() -> Response<Bytes> {
    let links =
        PROFILES.map(|(name, what)| format!("<li><a href=\"{name}\">{name}</a>: {what}</li>\n"));
    let text = format!(
        "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/<br>\n<ul>\n{}</ul>\n</body>\n</html>\n",
        links.concat()
    );
    answer(StatusCode::OK, "text/html; charset=utf-8", text)
}

/// Answers requests for profiles of Go's runtime, which are not available, and for unknown ones.
fn other(request: &Request<Bytes>) -> Response<Bytes> {
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
            line.pop();
            answer(StatusCode::OK, "text/plain; charset=utf-8", line)
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Answers with names and their counts, as a profile or as text.
fn counted(request: &Request<Bytes>, what: &str, all: &[(String, usize)]) -> Response<Bytes> {
    let total: usize = all.iter().map(|(_, n)| n).sum();
    if parameter(request, "debug").is_some_and(|debug| debug != "0") {
        let lines = all.iter().map(|(name, n)| format!("{n} @ {name}\n"));
        let text = format!("{what} profile: total {total}\n{}", lines.collect::<String>());
        return answer(StatusCode::OK, "text/plain; charset=utf-8", text);
    }
    let mut profile = Profile::new(&[(what, "count")], (what, "count"), 1);
    for (name, n) in all {
        profile.sample(
            &[vec![profile::Frame::named(name)]],
            &[i64::try_from(*n).unwrap_or(i64::MAX)],
            &[],
        );
    }
    file(what, &profile)
}

/// Answers with a profile without samples, as upstream's programs do while contention profiling is off.
fn contention(request: &Request<Bytes>, what: &str) -> Response<Bytes> {
    if parameter(request, "debug").is_some_and(|debug| debug != "0") {
        let kind = if what == "mutex" { "mutex" } else { "contention" };
        let text = format!("--- {kind}:\ncycles/second=1000000000\n");
        return answer(StatusCode::OK, "text/plain; charset=utf-8", text);
    }
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    file(what, &Profile::new(&types, ("contentions", "count"), 1))
}

/// Answers with a profile as a file.
fn file(what: &str, profile: &Profile) -> Response<Bytes> {
    match profile.gzip() {
        Ok(bytes) => bytes_of(what, bytes),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn bytes_of(what: &str, bytes: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = answer(StatusCode::OK, "application/octet-stream", bytes);
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{what}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    response
}

fn parameter<'a>(request: &'a Request<Bytes>, name: &str) -> Option<&'a str> {
    let pairs = request.uri().query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(present, _)| *present == name).map(|(_, value)| value)
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
            let response = other(&get(&format!("{ROOT}{name}")));
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
        let text = counted(&get("/?debug=1"), "goroutine", &all);
        assert_eq!(text.body(), "goroutine profile: total 6\n1 @ watch pods\n5 @ worker\n");
        let profile = counted(&get("/"), "goroutine", &all);
        assert_eq!(profile.body()[..2], [0x1f, 0x8b], "gzip");
    }
}
