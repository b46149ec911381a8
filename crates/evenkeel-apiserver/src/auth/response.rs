//! Results of authenticators.

use std::sync::Arc;

use evenkeel_apimachinery::user::User;

/// User whom valid credentials identify.
///
/// Upstream: `authenticator.Response`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) user: Arc<User>,
    /// Requested audiences for which the credentials are valid.
    pub(crate) audiences: Vec<String>,
}

/// Result of a token authenticator: `None` for a token that is not of its kind, an error for an invalid token of its
/// kind.
pub(crate) type Outcome = Result<Option<Response>, String>;

/// Side effects of authentication by a token, which the caller carries out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Warning to the client.
    pub(crate) warning: Option<&'static str>,
    /// Secret whose last-used label needs an update.
    pub(crate) used_secret: Option<UsedSecret>,
}

/// Secret that holds a used token, with the day of the use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UsedSecret {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Day as `2006-01-02`, in UTC.
    pub(crate) day: String,
}

/// Returns the members of `audiences` that are also in `requested`, in the order of `audiences`.
///
/// Upstream: `Audiences.Intersect`.
pub(crate) fn intersect(audiences: &[String], requested: &[String]) -> Vec<String> {
    audiences.iter().filter(|audience| requested.contains(audience)).cloned().collect()
}
