//! Fuzz targets for parameters and headers of requests.

use base64::Engine as _;
use evenkeel_api::selector::{FieldSelector, Selector};
use evenkeel_apimachinery::encode::accept;
use evenkeel_apiserver::fuzz;
use http::{HeaderMap, HeaderValue};

/// Parses label and field selectors. Checks that a printed label selector parses to the same selector.
pub(crate) fn selectors(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(selector) = Selector::parse(&text) {
        let written = selector.to_string();
        assert_eq!(Selector::parse(&written).as_ref(), Ok(&selector), "{written}");
        assert_eq!(selector.is_everything(), selector.requirements().is_empty());
        let matched = selector.matches_by(|key| (key.len().is_multiple_of(2)).then_some("1"));
        let each = |requirement: &evenkeel_api::selector::Requirement| {
            requirement.matches((requirement.key().len().is_multiple_of(2)).then_some("1"))
        };
        assert_eq!(matched, selector.requirements().iter().all(each));
    }
    if let Ok(selector) = FieldSelector::parse(&text) {
        assert_eq!(selector.is_everything(), selector.terms().is_empty());
        selector.matches(|_| "a");
    }
    fuzz::selectors(&text);
}

/// Decodes continue tokens. Checks that encoding and decoding an accepted token again yields the same content.
pub(crate) fn continue_token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // Guided mutation rarely produces valid base64, so each input is also used as the content of a token.
    let encoded = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(data);
    for token in [&*text, &encoded] {
        if let Ok((revision, after)) = fuzz::continue_token(token) {
            let again = fuzz::encode_continue_token(revision, &after);
            assert_eq!(fuzz::continue_token(&again), Ok((revision, after)));
        }
    }
}

/// Reads bearer tokens and the keys that verify them.
pub(crate) fn bearer_token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    fuzz::bearer_token(&text);
    let engine = base64::prelude::BASE64_URL_SAFE_NO_PAD;
    let parts: Vec<String> = crate::input::parts(data).map(|part| engine.encode(part)).collect();
    fuzz::bearer_token(&parts.join("."));
    fuzz::json_web_key(data);
    fuzz::public_keys(data);
}

/// Parses `Accept` headers and URL queries.
pub(crate) fn headers(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for part in crate::input::parts(data) {
        if let Ok(value) = HeaderValue::from_bytes(part) {
            headers.append("accept", value);
        }
    }
    for range in accept::media_ranges(&headers) {
        range.includes("application/json");
        range.param("as");
    }
    fuzz::query(&String::from_utf8_lossy(data));
}
