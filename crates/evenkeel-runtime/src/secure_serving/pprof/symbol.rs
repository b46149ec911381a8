//! Symbol lookup of program counters, for tools that request it. The program's own profiles already contain the
//! names.

use super::answer as reply;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use std::fmt::Write as _;

/// Maximum number of addresses per request.
const MAX_ADDRESSES: usize = 1000;

pub(super) fn answer(request: &Request<Bytes>) -> Response<Bytes> {
    let body = String::from_utf8_lossy(request.body());
    let requested = match *request.method() {
        Method::POST => &*body,
        _ => request.uri().query().unwrap_or_default(),
    };
    let mut text = "num_symbols: 1\n".to_owned();
    let addresses = requested
        .split('+')
        .filter_map(|address| usize::from_str_radix(address.trim().strip_prefix("0x")?, 16).ok());
    for address in addresses.take(MAX_ADDRESSES) {
        // `resolve` expects a return address, and looks up the instruction before it.
        let return_address = std::ptr::without_provenance_mut(address.saturating_add(1));
        backtrace::resolve(return_address, |symbol| {
            if let Some(name) = symbol.name() {
                // Writing into a String cannot fail.
                let _ = writeln!(text, "{address:#x} {name:#}");
            }
        });
    }
    reply(StatusCode::OK, "text/plain; charset=utf-8", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_a_name() {
        let address = answer as fn(&Request<Bytes>) -> Response<Bytes> as usize;
        let body = format!("0x1+nonsense+{address:#x}");
        let request = Request::post("/").body(Bytes::from(body)).unwrap();
        let text = String::from_utf8(answer(&request).body().to_vec()).unwrap();
        assert!(text.starts_with("num_symbols: 1\n"), "{text}");
        assert!(text.contains("answer"), "{text}");
    }
}
