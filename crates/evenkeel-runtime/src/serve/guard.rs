//! Who asks, and whether they may.

use super::{
    metrics::{Decision, Metrics},
    reviews::Reviews,
};
use http::{Request, header};
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct User {
    /// Name.
    pub name: String,
    /// Groups.
    pub groups: Vec<String>,
}

impl User {
    /// Somebody who said nothing of who they are.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
        }
    }

    /// The user of a client certificate: its common name, and its organizations as groups.
    pub fn from_certificate(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let mut groups: Vec<String> = subject
            .iter_organization()
            .filter_map(|o| o.as_str().ok())
            .map(str::to_owned)
            .collect();
        groups.push("system:authenticated".to_owned());
        Some(Self { name, groups })
    }

    fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

/// Why a request is not answered.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A credential was given that nobody vouches for.
    Unauthorized,
    /// The user may not.
    Forbidden {
        /// Who.
        user: String,
    },
    /// The cluster could not be asked.
    Unavailable(String),
}

/// Decides who may ask for what.
pub struct Guard {
    always_allow: Vec<String>,
    authentication: Option<Reviews>,
    authorization: Option<Reviews>,
    metrics: Option<Metrics>,
}

impl Guard {
    /// A guard that lets everyone get `always_allow` (a path, or a prefix with `*` at its end), and members of
    /// `system:masters` everything. What else is asked of `authentication` and `authorization`; where one is missing,
    /// tokens are not known and nobody else is let in.
    pub fn new(
        always_allow: Vec<String>,
        authentication: Option<Reviews>,
        authorization: Option<Reviews>,
    ) -> Self {
        Self { always_allow, authentication, authorization, metrics: None }
    }

    /// Counts who asks, and whether they may.
    #[must_use]
    pub fn counting(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self.authentication = self.authentication.map(|reviews| reviews.counting(metrics));
        self.authorization = self.authorization.map(|reviews| reviews.counting(metrics));
        self
    }

    pub(super) async fn admit(
        &self,
        request: &Request<()>,
        certified: Option<User>,
    ) -> Result<(), Refusal> {
        let start = Instant::now();
        let user = self.who(request, certified).await;
        if let Some(metrics) = &self.metrics {
            metrics.authenticated(user.as_ref().ok(), start.elapsed());
        }
        let (user, start) = (user?, Instant::now());
        let granted = self.may(&user, request).await;
        if let Some(metrics) = &self.metrics {
            let decision = match granted {
                Ok(true) => Decision::Allowed,
                Ok(false) => Decision::NoOpinion,
                Err(_) => Decision::Error,
            };
            metrics.authorized(decision, start.elapsed());
        }
        match granted {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::Forbidden { user: user.name }),
            Err(error) => Err(Refusal::Unavailable(error)),
        }
    }

    async fn may(&self, user: &User, request: &Request<()>) -> Result<bool, String> {
        let path = request.uri().path();
        if user.is_master() || self.always_allow.iter().any(|allowed| covers(allowed, path)) {
            return Ok(true);
        }
        let verb = request.method().as_str().to_lowercase();
        match &self.authorization {
            Some(reviews) => reviews.may(user, &verb, path).await,
            None => Ok(false),
        }
    }

    async fn who(&self, request: &Request<()>, certified: Option<User>) -> Result<User, Refusal> {
        if let Some(user) = certified {
            return Ok(user);
        }
        let given =
            request.headers().get(header::AUTHORIZATION).and_then(|given| given.to_str().ok());
        let token = given.and_then(|given| given.strip_prefix("Bearer ")).map(str::trim);
        // Who cannot ask what a token is takes no notice of it, as upstream's programs do.
        let (Some(token), Some(reviews)) = (token.filter(|t| !t.is_empty()), &self.authentication)
        else {
            return Ok(User::anonymous());
        };
        match reviews.whose(token).await {
            Ok(Some(user)) => Ok(user),
            Ok(None) => Err(Refusal::Unauthorized),
            Err(error) => {
                tracing::warn!(error, "Token could not be reviewed");
                Err(Refusal::Unauthorized)
            }
        }
    }
}

fn covers(allowed: &str, path: &str) -> bool {
    match allowed.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn admit(
        guard: &Guard,
        path: &str,
        token: Option<&str>,
        user: Option<User>,
    ) -> Result<(), Refusal> {
        let mut request = Request::builder().uri(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        guard.admit(&request.body(()).expect("a valid request"), user).await
    }

    #[tokio::test]
    async fn without_a_cluster_to_ask_only_open_paths_and_masters_pass() {
        let guard = Guard::new(vec!["/healthz".to_owned(), "/open/*".to_owned()], None, None);
        assert!(admit(&guard, "/healthz", None, None).await.is_ok());
        assert!(admit(&guard, "/open/door", None, None).await.is_ok());
        assert!(
            matches!(admit(&guard, "/metrics", None, None).await, Err(Refusal::Forbidden { user }) if user == "system:anonymous")
        );
        assert!(admit(&guard, "/healthz", Some("Bearer x"), None).await.is_ok());
        assert!(admit(&guard, "/metrics", Some("Bearer x"), None).await.is_err());
        let master = User { name: "root".to_owned(), groups: vec!["system:masters".to_owned()] };
        assert!(admit(&guard, "/metrics", None, Some(master)).await.is_ok());
    }
}
