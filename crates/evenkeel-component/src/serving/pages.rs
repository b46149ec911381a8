//! Pages about the program: configuration, flags, versions, profiles and controllers.

use super::zpages::{self, ComponentInfo, Structured, flagz, statusz};
use crate::secure_serving::{Routes, answer, plain, pprof};
use bytes::Bytes;
use evenkeel_runtime::introspect::Introspection;
use http::{Method, Request, Response, StatusCode, header};
use std::{collections::BTreeMap, num::IntErrorKind, sync::Arc};

/// Function that sets the log's verbosity.
pub(super) type SetVerbosity = Arc<dyn Fn(u32) + Send + Sync>;

/// Content of the pages about the program.
pub struct Pages {
    /// Versions and start time of the program, for `/statusz`.
    pub component: ComponentInfo,
    /// Content of `/configz`: configuration by API group.
    pub configz: serde_json::Value,
    /// Value of every flag. `None` disables `/flagz` (`ComponentFlagz` is off).
    pub flagz: Option<BTreeMap<String, String>>,
    /// Whether `/statusz` is served (`ComponentStatusz`).
    pub statusz: bool,
    /// `--profiling`: `/debug/pprof/` and `/debug/flags/v`.
    pub profiling: bool,
    /// Function that sets the log's verbosity. `None` if the verbosity cannot change.
    pub set_verbosity: Option<SetVerbosity>,
    /// Reports of the controllers, for `/debug/controllers`.
    pub controllers: Option<Introspection>,
}

impl Pages {
    pub(super) fn add_to(self, mut routes: Routes, program: &str) -> Routes {
        let configz = Bytes::from(self.configz.to_string());
        routes = routes
            .get("/configz", move |_| answer(StatusCode::OK, "application/json", configz.clone()));
        if self.profiling {
            routes = pprof::add_to(routes);
            if let Some(set_verbosity) = self.set_verbosity {
                routes = add_debug_flags(routes, set_verbosity);
            }
        }
        if let Some(controllers) = self.controllers {
            routes = routes.controllers(controllers);
        }
        if let Some(flags) = self.flagz {
            let page = flagz(program, flags);
            routes = routes.get("/flagz", move |request| zpages::answer(&page, request));
        }
        if self.statusz {
            let mut page = statusz(program, self.component);
            page.paths = routes.listed();
            let page: Arc<dyn Structured> = Arc::new(page);
            routes = routes.get("/statusz", move |request| zpages::answer(&*page, request));
        }
        routes
    }
}

/// Page of `/debug/flags`, as upstream writes it for its single flag `v`.
const DEBUG_FLAGS_PAGE: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n<table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";

/// Adds `/debug/flags`, which lists the flags that a PUT can change in a running program.
fn add_debug_flags(routes: Routes, set_verbosity: SetVerbosity) -> Routes {
    let index =
        |_: &Request<Bytes>| answer(StatusCode::OK, "text/html; charset=utf-8", DEBUG_FLAGS_PAGE);
    routes
        .unlisted("/debug/flags", index)
        .under("/debug/flags/", index)
        .unlisted("/debug/flags/v", move |request| change_verbosity(request, &set_verbosity))
}

/// Sets the log's verbosity to the number in the body of a PUT. The responses are upstream's.
fn change_verbosity(request: &Request<Bytes>, set_verbosity: &SetVerbosity) -> Response<Bytes> {
    let respond = |code: StatusCode, message: &str| {
        let mut response = plain(code, message);
        // Unlike on other pages, upstream sends no charset here.
        let content_type = http::HeaderValue::from_static("text/plain");
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        response
    };
    if request.method() != Method::PUT {
        return respond(StatusCode::NOT_ACCEPTABLE, "unsupported http method");
    }
    let body = String::from_utf8_lossy(request.body());
    // Go's parser accepts only digits. Rust's also accepts a sign, so check the digits first.
    let only_digits = body.bytes().all(|byte| byte.is_ascii_digit());
    let problem = match body.parse::<u32>() {
        Ok(verbosity) if only_digits => {
            set_verbosity(verbosity);
            let message = format!("successfully set klog.logging.verbosity to {body}");
            return respond(StatusCode::OK, &message);
        }
        Err(error) if only_digits && *error.kind() == IntErrorKind::PosOverflow => {
            "value out of range"
        }
        _ => "invalid syntax",
    };
    let message = format!("strconv.ParseUint: parsing {body:?}: {problem}");
    respond(StatusCode::BAD_REQUEST, &message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn verbosity_is_changed_by_put() {
        let last_set = Arc::new(Mutex::new(None));
        let sink = last_set.clone();
        let set: SetVerbosity = Arc::new(move |verbosity| *sink.lock().unwrap() = Some(verbosity));
        let table = [
            ("GET", "3", 406, "unsupported http method\n", None),
            ("PUT", "3", 200, "successfully set klog.logging.verbosity to 3\n", Some(3)),
            ("PUT", "abc", 400, "strconv.ParseUint: parsing \"abc\": invalid syntax\n", None),
            ("PUT", "", 400, "strconv.ParseUint: parsing \"\": invalid syntax\n", None),
            ("PUT", "+3", 400, "strconv.ParseUint: parsing \"+3\": invalid syntax\n", None),
            (
                "PUT",
                "4294967296",
                400,
                "strconv.ParseUint: parsing \"4294967296\": value out of range\n",
                None,
            ),
        ];
        for (method, body, code, text, verbosity) in table {
            let request = Request::builder().method(method).body(Bytes::from(body)).unwrap();
            let response = change_verbosity(&request, &set);
            assert_eq!((response.status().as_u16(), &response.body()[..]), (code, text.as_bytes()));
            assert_eq!(last_set.lock().unwrap().take(), verbosity, "{method} {body}");
        }
    }
}
