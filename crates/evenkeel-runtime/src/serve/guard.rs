//! The way into a server: who asks, and whether they may.

use super::{
    authenticate::Authenticator,
    authorize::{Authorizer, OpenPaths, Ruling},
    metrics::{Decision, Metrics},
    reviews::Reviews,
    trust::Trust,
    user::User,
};
use crate::clock::Clock;
use http::Request;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A credential was given that nobody vouches for.
    Unauthorized,
    /// The user may not.
    Forbidden {
        /// Who.
        user: String,
        /// What the cluster says of why; often nothing.
        reason: String,
    },
    /// The cluster could not be asked.
    Unavailable(String),
}

impl Refusal {
    /// Whether nobody knows who was refused.
    pub(super) fn is_of_nobody(&self) -> bool {
        match self {
            Self::Unauthorized => true,
            Self::Forbidden { user, .. } => *user == User::anonymous().name,
            Self::Unavailable(_) => false,
        }
    }
}

/// Decides who may ask for what.
pub struct Guard {
    authenticator: Authenticator,
    authorizer: Authorizer,
    metrics: Option<Metrics>,
}

impl Guard {
    /// Certificates are believed as `trust` says; tokens are reviewed by `authentication`, and rights by `authorization`.
    /// Where one is missing, tokens are not looked at, and nobody but members of `system:masters` gets anything but `open`.
    pub fn new(
        open: OpenPaths,
        trust: Trust,
        authentication: Option<Reviews>,
        authorization: Option<Reviews>,
        clock: Clock,
    ) -> Self {
        Self {
            authenticator: Authenticator { trust, tokens: authentication, clock, metrics: None },
            authorizer: Authorizer { open, reviews: authorization },
            metrics: None,
        }
    }

    /// Counts who asks, and whether they may.
    #[must_use]
    pub fn counting(mut self, metrics: &Metrics) -> Self {
        let Self { authenticator, authorizer, .. } = &mut self;
        authenticator.tokens = authenticator.tokens.take().map(|reviews| reviews.counting(metrics));
        authenticator.metrics = Some(metrics.clone());
        authorizer.reviews = authorizer.reviews.take().map(|reviews| reviews.counting(metrics));
        self.metrics = Some(metrics.clone());
        self
    }

    /// Who asks, if they may.
    pub(super) async fn admit<B>(
        &self,
        request: &Request<B>,
        chain: &[CertificateDer<'_>],
    ) -> Result<User, Refusal> {
        let start = Instant::now();
        let found = self.authenticator.who(request.headers(), chain).await;
        if let Some(metrics) = &self.metrics {
            metrics.authenticated(found.as_ref().ok(), start.elapsed());
        }
        let user = match found {
            Ok(user) => user,
            Err(why) => {
                tracing::warn!(why, "Unable to authenticate the request");
                return Err(Refusal::Unauthorized);
            }
        };
        let (verb, path) = (request.method().as_str().to_lowercase(), path(request));
        let start = Instant::now();
        let ruling = self.authorizer.rule(&user, &verb, &path).await;
        if let Some(metrics) = &self.metrics {
            let decision = match ruling {
                Ruling::Allowed => Decision::Allowed,
                Ruling::Denied(_) => Decision::NoOpinion,
                Ruling::Failed(_) => Decision::Error,
            };
            metrics.authorized(decision, start.elapsed());
        }
        match ruling {
            Ruling::Allowed => Ok(user),
            Ruling::Denied(reason) => {
                tracing::debug!(user = user.name, verb, path, reason, "Forbidden");
                Err(Refusal::Forbidden { user: user.name, reason })
            }
            Ruling::Failed(why) => {
                tracing::warn!(user = user.name, verb, path, why, "Access could not be reviewed");
                Err(Refusal::Unavailable(why))
            }
        }
    }
}

/// The path that is asked for, with nothing escaped in it: what is authorized is what is routed.
pub(super) fn path<B>(request: &Request<B>) -> String {
    let path = percent_encoding::percent_decode_str(request.uri().path());
    path.decode_utf8_lossy().into_owned()
}
