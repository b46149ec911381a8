//! Responses of authenticators.

use std::sync::Arc;

use evenkeel_apimachinery::user::User;

/// User that valid credentials authenticate.
///
/// Upstream: `authenticator.Response`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) user: Arc<User>,
    /// Requested audiences for which the credentials are valid.
    pub(crate) audiences: Vec<String>,
}

/// Result of a token authenticator: `None` for a token of another kind, an error for an invalid token of its kind.
pub(crate) type Outcome = Result<Option<Response>, String>;

/// Side effects of a token's use.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Warning to the client.
    pub(crate) warning: Option<&'static str>,
    /// Secret whose label needs a new day of last use.
    pub(crate) used_secret: Option<UsedSecret>,
}

/// Secret of a token, with the day of the token's last use.
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
