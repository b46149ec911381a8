//! Responses of authenticators.

use std::sync::Arc;

use evenkeel_apimachinery::user::User;

/// The user of valid credentials.
///
/// Upstream: `authenticator.Response`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) user: Arc<User>,
    /// Those of the wanted audiences that the credentials are for.
    pub(crate) audiences: Vec<String>,
}

/// The answer of a token authenticator: `None` if the token is of another kind, an error if it is of this kind and not valid.
pub(crate) type Outcome = Result<Option<Response>, String>;

/// Consequences of the use of a token, besides the user.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Warning to the client.
    pub(crate) warning: Option<&'static str>,
    /// The Secret whose token was used for the first time today.
    pub(crate) used_secret: Option<UsedSecret>,
}

/// A Secret and the day when its token was last used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UsedSecret {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The day as `2006-01-02`, in UTC.
    pub(crate) day: String,
}

/// Returns those of `audiences` that are wanted, in their order.
///
/// Upstream: `Audiences.Intersect`.
pub(crate) fn intersect(audiences: &[String], requested: &[String]) -> Vec<String> {
    audiences.iter().filter(|audience| requested.contains(audience)).cloned().collect()
}
