//! Authenticators of all issuers of a configuration, with the tasks that fetch their keys.

use evenkeel_apimachinery::user::User;
use futures::future::join_all;
use jiff::Timestamp;

use super::JwtAuthenticator;
use crate::tasks::Tasks;

/// Authenticators of one configuration. The tasks that fetch their keys end when it is dropped.
///
/// Upstream: `jwtAuthenticatorWithCancel`.
pub(crate) struct JwtAuthenticators {
    authenticators: Vec<JwtAuthenticator>,
    _key_fetchers: Tasks,
}

impl JwtAuthenticators {
    /// Starts a task for each issuer that fetches its keys.
    pub(super) fn start(authenticators: Vec<JwtAuthenticator>, tasks: Tasks) -> Self {
        for authenticator in &authenticators {
            tasks.spawn("JSON web keys", authenticator.key_fetcher());
        }
        Self { authenticators, _key_fetchers: tasks }
    }

    /// Waits until the keys of all issuers were fetched.
    pub(super) async fn ready(&self) {
        join_all(self.authenticators.iter().map(|one| one.keys.fetched())).await;
    }

    /// Returns an error for each issuer without keys.
    ///
    /// Upstream: `HealthCheck`.
    pub(super) fn unhealthy(&self) -> Vec<String> {
        let without_keys = self.authenticators.iter().filter(|one| !one.keys.are_fetched());
        let error = |one: &JwtAuthenticator| {
            format!("oidc: authenticator for issuer {:?} is not initialized", one.issuer.url)
        };
        without_keys.map(error).collect()
    }

    /// Returns the user of a token; `None` if no issuer of the configuration signed it.
    ///
    /// # Errors
    /// The issuer's authenticator refuses the token. The issuer is this authenticator's, so that no other one can
    /// accept it.
    ///
    /// Upstream: `NewFailOnError`.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<User>, String> {
        for authenticator in &self.authenticators {
            if let Some(user) = authenticator.authenticate(token, now).await? {
                return Ok(Some(user));
            }
        }
        Ok(None)
    }
}
