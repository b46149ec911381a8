//! Decides which keys and certificates are due.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A missing or expired CA is replaced together with the serving certificate | `check_signer` |
//! | A serving certificate is renewed after two thirds of its life, and when clients would refuse it | `decide` |
//! | A CA is rotated after two thirds of its life; the old one stays trusted until it expires | `decide` |
//! | The CA's successor signs when the serving certificate is next due, so that all clients trust it by then | `decide` |
//! | A CA that is expired or cannot be read is removed from the bundle | `decide` |

use super::material::{Authority, Material, Names, Validity};
use evenkeel_api::time::{SignedDuration, Timestamp};

/// Lifetime of a CA (10 years).
pub(super) const AUTHORITY_LIFETIME: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// Lifetime of a serving certificate (1 year).
pub(super) const SERVING_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Remaining lifetime below which a CA no longer signs.
const MIN_SIGNER_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of CAs in a bundle.
pub(super) const MAX_AUTHORITIES: usize = 4;

/// Certificates to renew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// A CA and a serving certificate.
    Everything,
    /// A serving certificate, which the CA signs.
    Serving,
    /// A CA, which signs the next serving certificate. The serving certificate stays.
    Authority,
    /// The bundle, without the CAs that have expired.
    Bundle,
}

/// Decision about the content of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// These certificates must be renewed, for this reason.
    Renew(Renewal, String),
    /// No renewal is due before this time.
    Keep(Timestamp),
}

/// Decides which certificates must be renewed, and why.
pub(super) fn decide(material: Option<&Material>, names: &Names, now: Timestamp) -> Decision {
    let renew = |renewal, reason: &str| Decision::Renew(renewal, reason.to_owned());
    let Some(material) = material else {
        return renew(Renewal::Everything, "there is no Secret");
    };
    let authority = match check_signer(material, now) {
        Ok(validity) => validity,
        Err(reason) => return Decision::Renew(Renewal::Everything, reason),
    };
    let authorities = material.authorities();
    let is_stale =
        |known: &Option<Authority>| known.as_ref().is_none_or(|known| known.validity.until <= now);
    if authorities.iter().any(is_stale) {
        return renew(Renewal::Bundle, "the bundle has a CA that is expired or cannot be read");
    }
    let serving = match material.check_serving(names, now) {
        Ok(validity) => validity,
        Err(reason) => return Decision::Renew(Renewal::Serving, reason),
    };
    // The serving certificate is renewed before the CA, because all clients already trust the CA that signs it.
    if now >= serving.renewal_time() {
        return renew(Renewal::Serving, "two thirds of the serving certificate's life are over");
    }
    if now >= authority.renewal_time() {
        return renew(Renewal::Authority, "two thirds of the CA's life are over");
    }
    let ends = authorities.iter().flatten().map(|known| known.validity.until);
    let next = ends.chain([serving.renewal_time(), authority.renewal_time()]).min();
    Decision::Keep(next.unwrap_or(now))
}

/// Returns the validity of the CA that signs.
fn check_signer(material: &Material, now: Timestamp) -> Result<Validity, String> {
    let (authority, _) = material.signer()?;
    if authority.validity.until < now + MIN_SIGNER_LIFE {
        return Err("the CA has expired".to_owned());
    }
    Ok(authority.validity)
}

#[cfg(test)]
mod tests;
