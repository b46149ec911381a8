//! Header `Audit-ID` of responses. The server has no audit policies and no audit log.

use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::api::Api;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Sets the audit ID in the response's headers: the client's valid ID, or else a new one. A proxied response keeps its
/// own ID.
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

/// Returns whether a client's ID is non-blank text. Its length has no limit.
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
