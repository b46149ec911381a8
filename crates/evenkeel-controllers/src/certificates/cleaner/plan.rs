//! Lifetime of a CertificateSigningRequest.

use crate::certificates::{SigningRequest, has_condition, issued_certificate};
use evenkeel_api::{
    View as _,
    time::{SignedDuration, Timestamp},
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Lifetime of requests that were issued, denied or failed. Upstream: `approvedExpiration`, `deniedExpiration`.
const DECIDED_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Lifetime of pending requests, and of approved ones without a certificate. Upstream: `pendingExpiration`.
const PENDING_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// Returns the reason to delete a request, or `None` if it is not expired.
pub(super) fn expiration_reason(request: &SigningRequest, now: Timestamp) -> Option<&'static str> {
    let status = request.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_older = |since: Option<Timestamp>, lifetime| {
        since.is_some_and(|since| now.duration_since(since) > lifetime)
    };
    let has_older = |type_: &str, lifetime| {
        conditions.iter().any(|condition| {
            let updated = condition.last_update_time.as_ref().map(|time| time.0);
            condition.type_ == type_ && is_older(updated, lifetime)
        })
    };
    let certificate = issued_certificate(request);
    match certificate {
        Some(_) if has_older("Approved", DECIDED_LIFETIME) => Some("it was issued long ago"),
        _ if has_older("Denied", DECIDED_LIFETIME) => Some("it was denied long ago"),
        _ if has_older("Failed", DECIDED_LIFETIME) => Some("it failed long ago"),
        _ if conditions.is_empty() && is_older(request.meta().creation, PENDING_LIFETIME) => {
            Some("nobody has decided upon it")
        }
        Some(pem) if has_condition(request, "Approved") && is_expired(pem, now) => {
            Some("its certificate has expired")
        }
        None if has_older("Approved", PENDING_LIFETIME) => Some("it was approved and never issued"),
        _ => None,
    }
}

/// Returns whether the certificate in this PEM is expired. Invalid PEM counts as not expired.
fn is_expired(pem: &[u8], now: Timestamp) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(pem) else { return false };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else { return false };
    let end = Timestamp::from_second(certificate.validity().not_after.timestamp());
    end.is_ok_and(|end| now > end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, object};
    use base64::prelude::*;
    use evenkeel_api::time::seconds;
    use serde_json::{Value, json};

    const HOUR: i64 = 3600;

    /// Returns a request created 1000 hours before the tests' time, with conditions of the given ages in seconds.
    fn request(condition_ages: &[(&str, i64)], certificate: Option<&str>) -> SigningRequest {
        let conditions: Vec<Value> = condition_ages
            .iter()
            .map(|(type_, age)| json!({"type": type_, "status": "True", "lastUpdateTime": seconds(at(-age))}))
            .collect();
        let mut status = json!({"conditions": conditions});
        if let Some(certificate) = certificate {
            status["certificate"] = json!(BASE64_STANDARD.encode(certificate));
        }
        object(&json!({
            "metadata": {"name": "a", "creationTimestamp": seconds(at(-1000 * HOUR))},
            "spec": {"request": "", "signerName": "x"}, "status": status,
        }))
    }

    fn certificate(end: i64) -> String {
        let mut params = rcgen::CertificateParams::default();
        let end = at(end).to_zoned(jiff::tz::TimeZone::UTC);
        let (month, day) = (u8::try_from(end.month()).unwrap(), u8::try_from(end.day()).unwrap());
        params.not_after = rcgen::date_time_ymd(i32::from(end.year()), month, day);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn request_expires_by_condition_and_age() {
        let good = certificate(48 * HOUR);
        let old = certificate(-48 * HOUR);
        type Row<'a> = (&'a [(&'a str, i64)], Option<&'a str>, bool);
        let table: [Row<'_>; 13] = [
            (&[("Approved", HOUR)], Some(&good), false),
            (&[("Approved", HOUR + 1)], Some(&good), true),
            (&[("Approved", HOUR)], Some(&old), true),
            (&[("Approved", HOUR)], Some("no certificate"), false),
            (&[("Approved", 24 * HOUR)], None, false),
            (&[("Approved", 24 * HOUR + 1)], None, true),
            (&[("Denied", HOUR)], None, false),
            (&[("Denied", HOUR + 1)], None, true),
            (&[("Failed", HOUR)], None, false),
            (&[("Approved", HOUR), ("Failed", HOUR + 1)], None, true),
            (&[], None, true),
            // An unknown condition keeps the request.
            (&[("Other", 1000 * HOUR)], None, false),
            (&[("Other", 1)], Some(&old), false),
        ];
        for (number, (conditions, certificate, expected)) in table.into_iter().enumerate() {
            assert_eq!(
                expiration_reason(&request(conditions, certificate), at(0)).is_some(),
                expected,
                "{number}"
            );
        }
    }

    #[test]
    fn pending_request_is_deleted_after_24_hours() {
        let pending = |age: i64| -> SigningRequest {
            object(&json!({
                "metadata": {"name": "a", "creationTimestamp": seconds(at(-age))},
                "spec": {"request": "", "signerName": "x"},
            }))
        };
        assert_eq!(expiration_reason(&pending(24 * HOUR), at(0)), None);
        assert!(expiration_reason(&pending(24 * HOUR + 1), at(0)).is_some());
    }
}
