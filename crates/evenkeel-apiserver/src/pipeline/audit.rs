//! The header `Audit-ID` of each answer. Nothing else of auditing is here: no policies, no log.

use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::api::Api;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Sets the id that a request is audited by in the headers of its answer: the client's own, else a new one. An answer of
/// another server that passes through keeps its id.
///
/// Upstream: `WithAuditInit`.
pub(super) fn audit(api: &Api, request: &HeaderMap, response: &mut HeaderMap) {
    let Entry::Vacant(id) = response.entry(AUDIT_ID) else { return };
    let chosen = request.get(AUDIT_ID).filter(|id| is_valid(id));
    id.insert(match chosen {
        Some(id) => id.clone(),
        None => HeaderValue::try_from(api.uid()).unwrap_or_else(|_| HeaderValue::from_static("-")),
    });
}

/// Whether a client's id is one: some text. Its length is the client's to choose.
fn is_valid(id: &HeaderValue) -> bool {
    std::str::from_utf8(id.as_bytes()).is_ok_and(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_some_text() {
        for (id, valid) in [
            (&b"6a1b2c3d-0000-4000-8000-000000000001"[..], true),
            (b"mine", true),
            ("\u{e9}".as_bytes(), true),
            (b"", false),
            (b"  ", false),
            (b"\xe9", false),
        ] {
            let id = HeaderValue::from_bytes(id).unwrap();
            assert_eq!(is_valid(&id), valid, "{id:?}");
        }
    }
}
