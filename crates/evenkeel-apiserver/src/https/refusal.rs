//! Errors that represent unsuccessful responses.

use evenkeel_api::json;
use evenkeel_apimachinery::status::quote;
use evenkeel_apimachinery::value::text;
use http::StatusCode;
use serde_json::Value;

/// Returns the error for an unsuccessful response, in the words of upstream's client.
pub(crate) fn error_of_response(code: StatusCode, body: &[u8]) -> String {
    let status: Value = json::from_slice(body).unwrap_or_default();
    if text(&status, "kind") == "Status" && text(&status, "status") == "Failure" {
        return text(&status, "message").to_owned();
    }
    let body_text = String::from_utf8_lossy(body);
    let body_text = body_text.trim();
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => body_text.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if body_text.is_empty() => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        406 => body_text.to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        500.. => format!("an error on the server ({}) has prevented the request from succeeding", quote(body_text)),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}
