//! Authorizes requests. `system:masters` may do everything, and some paths need no authorization. A
//! SubjectAccessReview decides all other requests.

use super::{
    reviews::{Access, ReviewClient},
    user::User,
};

/// Paths that need no authorization: exact paths, and prefixes that end in `*`.
///
/// Upstream: `NewAuthorizer` (apiserver/pkg/authorization/path)
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlwaysAllowPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

/// Error of a path with a `*` that is not at its end.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("only trailing * allowed in {0:?}")]
pub struct AlwaysAllowPathError(String);

impl AlwaysAllowPaths {
    /// Parses the value of `--authorization-always-allow-paths`.
    ///
    /// # Errors
    /// Fails if a `*` is not at the end of a path.
    pub fn new(paths: &[String]) -> Result<Self, AlwaysAllowPathError> {
        let mut allowed = Self::default();
        for path in paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            match path.strip_suffix('*') {
                Some(prefix) if !prefix.contains('*') => allowed.prefixes.push(prefix.to_owned()),
                None if !path.contains('*') => allowed.exact.push(path.to_owned()),
                _ => return Err(AlwaysAllowPathError(path.to_owned())),
            }
        }
        Ok(allowed)
    }

    fn matches(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.iter().any(|exact| exact == path)
            || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

/// Result of the authorization of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AuthorizationResult {
    Allowed,
    /// An authorizer refused explicitly. The reason may be empty.
    Denied(String),
    /// No authorizer allowed or refused the request, so the request is forbidden too. The reason may be empty.
    NoOpinion(String),
    /// The SubjectAccessReview failed.
    Failed(String),
}

/// Authorizer of requests, mostly by SubjectAccessReview.
///
/// Upstream: `DelegatingAuthorizerConfig`.
pub(super) struct DelegatingAuthorizer {
    pub(super) always_allowed: AlwaysAllowPaths,
    pub(super) reviews: Option<ReviewClient>,
}

impl DelegatingAuthorizer {
    pub(super) async fn authorize(
        &self,
        user: &User,
        verb: &str,
        path: &str,
    ) -> AuthorizationResult {
        if user.is_in_masters() || self.always_allowed.matches(path) {
            return AuthorizationResult::Allowed;
        }
        let Some(reviews) = &self.reviews else {
            return AuthorizationResult::NoOpinion(String::new());
        };
        reviews
            .review_access(user, verb, path)
            .await
            .map_or_else(AuthorizationResult::Failed, AuthorizationResult::from)
    }
}

impl From<Access> for AuthorizationResult {
    /// Converts the result of a review. A review that both allows and denies has failed.
    ///
    /// Upstream: `WebhookAuthorizer`
    fn from(Access { allowed, denied, reason }: Access) -> Self {
        match (allowed, denied) {
            (true, true) => {
                Self::Failed("the access review was both granted and denied".to_owned())
            }
            (true, false) => Self::Allowed,
            (false, true) => Self::Denied(reason),
            (false, false) => Self::NoOpinion(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(paths: &[&str]) -> Result<AlwaysAllowPaths, AlwaysAllowPathError> {
        AlwaysAllowPaths::new(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn always_allow_paths_match_exactly_or_by_prefix() {
        let paths = open(&["/healthz", "livez", "/open/*", "/"]).unwrap();
        let table = [
            ("/healthz", true),
            ("healthz", true),
            ("/healthz/", false),
            ("/healthz/x", false),
            ("/livez", true),
            ("/open/", true),
            ("/open/door/x", true),
            ("/open", false),
            ("/opener", false),
            ("/", true),
            ("/metrics", false),
        ];
        for (path, expected) in table {
            assert_eq!(paths.matches(path), expected, "{path}");
        }
        assert!(open(&["*"]).unwrap().matches("/anything"));
        assert_eq!(open(&["/a*b"]).unwrap_err().to_string(), "only trailing * allowed in \"a*b\"");
        assert!(open(&["/a**"]).is_err());
    }

    #[test]
    fn explicit_denial_differs_from_no_opinion() {
        let result_of = |allowed, denied| {
            AuthorizationResult::from(Access { allowed, denied, reason: "why".to_owned() })
        };
        assert_eq!(result_of(true, false), AuthorizationResult::Allowed);
        assert_eq!(result_of(false, true), AuthorizationResult::Denied("why".to_owned()));
        assert_eq!(result_of(false, false), AuthorizationResult::NoOpinion("why".to_owned()));
        assert!(matches!(result_of(true, true), AuthorizationResult::Failed(_)));
    }

    #[tokio::test]
    async fn without_reviews_only_open_paths_and_masters_pass() {
        let authorizer =
            DelegatingAuthorizer { always_allowed: open(&["/healthz"]).unwrap(), reviews: None };
        let master = User {
            name: "root".to_owned(),
            groups: vec!["system:masters".to_owned()],
            ..User::default()
        };
        let no_opinion = AuthorizationResult::NoOpinion(String::new());
        assert_eq!(
            authorizer.authorize(&User::anonymous(), "get", "/healthz").await,
            AuthorizationResult::Allowed
        );
        assert_eq!(authorizer.authorize(&User::anonymous(), "get", "/metrics").await, no_opinion);
        assert_eq!(
            authorizer.authorize(&master, "delete", "/metrics").await,
            AuthorizationResult::Allowed
        );
    }
}
