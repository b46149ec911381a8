//! Authentication stage: determines the user of a request.

use std::sync::Arc;

use http::{HeaderMap, Response};

use crate::api::Api;
use crate::auth::Authenticated;
use crate::loopback;
use crate::request::Query;
use crate::response::{Body, refusal};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// Marks the response to an anonymous user, or to a user with invalid credentials.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anonymous;

/// Returns the user of a request's credentials or of its connection. Records the use of a Secret's token in the Secret.
///
/// Upstream: `WithAuthentication`.
pub(super) async fn authenticate(
    api: &Arc<Api>,
    headers: &HeaderMap,
    path: &str,
    peer: Option<&Arc<User>>,
) -> Authenticated {
    let now = api.clock.now();
    let authenticated =
        api.authenticator.authenticate_request(&api.store, now, headers, path, peer).await;
    if let Some(secret) = &authenticated.notes.used_secret {
        loopback::record_token_use(api, secret).await;
    }
    authenticated
}

/// Returns the response to a request without a valid user.
///
/// Upstream: `Unauthorized`.
pub(super) fn unauthorized(headers: &HeaderMap, query: &Query) -> Response<Body> {
    let mut response = refusal(&StatusError::unauthorized(), headers, &query.0);
    response.extensions_mut().insert(Anonymous);
    response
}
