//! Authenticates and authorizes requests.

use super::{
    authentication::DelegatingAuthenticator,
    authorization::{AlwaysAllowPaths, AuthorizationResult, DelegatingAuthorizer},
    metrics::{Decision, Metrics},
    reviews::ReviewClient,
    trust::Trust,
    user::User,
};
use crate::clock::Clock;
use http::Request;
use rustls::pki_types::CertificateDer;

/// Reason to reject a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The credentials are invalid.
    Unauthorized,
    /// The user lacks the permission.
    Forbidden {
        /// Name of the user.
        user: String,
        /// Reason from the SubjectAccessReview, often empty.
        reason: String,
    },
    /// The SubjectAccessReview failed.
    Unavailable(String),
}

impl Rejection {
    /// Returns whether the rejected user is anonymous.
    pub(super) fn is_anonymous(&self) -> bool {
        match self {
            Self::Unauthorized => true,
            Self::Forbidden { user, .. } => *user == User::anonymous().name,
            Self::Unavailable(_) => false,
        }
    }
}

/// Authenticates and authorizes every request.
///
/// Upstream: `WithAuthentication`, `WithAuthorization`.
pub struct Guard {
    authenticator: DelegatingAuthenticator,
    authorizer: DelegatingAuthorizer,
    metrics: Option<Metrics>,
    refuses_anonymous: bool,
}

impl Guard {
    /// Creates a guard that verifies certificates with `trust`, tokens with `authentication` and permissions
    /// with `authorization`. Without `authentication`, the guard ignores tokens. Without `authorization`, members of
    /// `system:masters` may use all paths, and other users only the `always_allowed` ones.
    pub fn new(
        always_allowed: AlwaysAllowPaths,
        trust: Trust,
        authentication: Option<ReviewClient>,
        authorization: Option<ReviewClient>,
        clock: Clock,
    ) -> Self {
        Self {
            authenticator: DelegatingAuthenticator {
                trust,
                tokens: authentication,
                clock,
                metrics: None,
            },
            authorizer: DelegatingAuthorizer { always_allowed, reviews: authorization },
            metrics: None,
            refuses_anonymous: false,
        }
    }

    /// Refuses requests without credentials as unauthorized. By default, they are authorized as an anonymous user.
    #[must_use]
    pub fn refuse_anonymous(self) -> Self {
        Self { refuses_anonymous: true, ..self }
    }

    /// Counts authentication attempts and authorization decisions.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        let Self { authenticator, authorizer, .. } = &mut self;
        authenticator.tokens =
            authenticator.tokens.take().map(|reviews| reviews.with_metrics(metrics));
        authenticator.metrics = Some(metrics.clone());
        authorizer.reviews = authorizer.reviews.take().map(|reviews| reviews.with_metrics(metrics));
        self.metrics = Some(metrics.clone());
        self
    }

    /// Returns the user of an authorized request.
    pub(super) async fn admit<B>(
        &self,
        request: &Request<B>,
        chain: &[CertificateDer<'_>],
    ) -> Result<User, Rejection> {
        let start = self.authenticator.clock.instant();
        let authenticated = self.authenticator.authenticate_request(request.headers(), chain).await;
        if let Some(metrics) = &self.metrics {
            metrics.record_authentication(authenticated.as_ref().ok(), start.elapsed());
        }
        let user = match authenticated {
            Ok(user) => user,
            Err(why) => {
                tracing::warn!(why, "Unable to authenticate the request");
                return Err(Rejection::Unauthorized);
            }
        };
        if self.refuses_anonymous && user.is_anonymous() {
            return Err(Rejection::Unauthorized);
        }
        let (verb, path) = (request.method().as_str().to_lowercase(), path(request));
        let start = self.authenticator.clock.instant();
        let authorization = self.authorizer.authorize(&user, &verb, &path).await;
        if let Some(metrics) = &self.metrics {
            let decision = match authorization {
                AuthorizationResult::Allowed => Decision::Allowed,
                AuthorizationResult::Denied(_) => Decision::Denied,
                AuthorizationResult::NoOpinion(_) => Decision::NoOpinion,
                AuthorizationResult::Failed(_) => Decision::Error,
            };
            metrics.record_authorization(decision, start.elapsed());
        }
        match authorization {
            AuthorizationResult::Allowed => Ok(user),
            AuthorizationResult::Denied(reason) | AuthorizationResult::NoOpinion(reason) => {
                tracing::debug!(user = user.name, verb, path, reason, "Forbidden");
                Err(Rejection::Forbidden { user: user.name, reason })
            }
            AuthorizationResult::Failed(why) => {
                tracing::warn!(user = user.name, verb, path, why, "Access could not be reviewed");
                Err(Rejection::Unavailable(why))
            }
        }
    }
}

/// Returns the unescaped path of a request. Authorization and routing use the same path.
pub(super) fn path<B>(request: &Request<B>) -> String {
    let path = percent_encoding::percent_decode_str(request.uri().path());
    path.decode_utf8_lossy().into_owned()
}
