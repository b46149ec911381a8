//! Options of authentication.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::auth::{
    Anonymous, Authenticator, JwtSource, PublicKey, RequestHeaderOptions, ServiceAccountOptions,
    ServiceAccounts, Signer, StaticTokens,
};
use crate::clock::Clock;
use crate::tasks::Tasks;

use evenkeel_x509::CertPool;

/// Default issuer of service account tokens.
const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc";

/// Options of authentication, named after kube-apiserver's flags.
#[derive(Clone, Default)]
pub struct AuthenticationOptions {
    /// File with an `AuthenticationConfiguration` (`--authentication-config`): issuers of JSON web tokens, and anonymous
    /// requests. Changes of the issuers apply without a restart.
    pub authentication_config: Option<PathBuf>,
    /// Whether requests without credentials are served as `system:anonymous` (`--anonymous-auth`, default true). The
    /// configuration file may set this instead.
    pub anonymous_auth: Option<bool>,
    /// Whether the server accepts bootstrap tokens (`--enable-bootstrap-token-auth`).
    pub enable_bootstrap_token_auth: bool,
    /// Private key in PEM that signs service account tokens (`--service-account-signing-key-file`). Default: a
    /// generated key of the server.
    pub service_account_signing_key: Option<String>,
    /// Further keys in PEM that verify service account tokens (`--service-account-key-file`).
    pub service_account_keys: Vec<String>,
    /// Issuer URLs of service account tokens (`--service-account-issuer`). New tokens have the first one; tokens with
    /// the others are accepted, too. Default: `https://kubernetes.default.svc`.
    pub service_account_issuers: Vec<String>,
    /// Audiences of the server (`--api-audiences`). Default: the issuers.
    pub api_audiences: Vec<String>,
    /// URL of the keys of service account tokens (`--service-account-jwks-uri`). Default: `/openid/v1/jwks` of this
    /// server.
    pub service_account_jwks_uri: Option<String>,
    /// Front proxies that may name users in headers. Default: none.
    pub request_header: Option<RequestHeaderOptions>,
}

impl AuthenticationOptions {
    /// Builds the authenticator. The server's `generated_key` signs tokens unless another key is set. The keys of other
    /// issuers are fetched by children of `tasks`. An error has the option's name and the reason.
    pub(super) fn build(
        self,
        static_tokens: StaticTokens,
        generated_key: &str,
        advertised: SocketAddr,
        clock: &Clock,
        tasks: &Tasks,
    ) -> Result<Authenticator, (&'static str, String)> {
        let invalid = |option| move |reason: String| (option, reason);
        let mut issuers = self.service_account_issuers;
        if issuers.is_empty() {
            issuers.push(DEFAULT_ISSUER.to_owned());
        }
        if issuers.iter().any(String::is_empty) {
            return Err(invalid("service-account-issuer")("it must not be empty".to_owned()));
        }
        let (jwt, anonymous_in_file) = match &self.authentication_config {
            None => (None, None),
            Some(path) => {
                let server = advertised.to_string();
                let loaded = JwtSource::load(path, issuers.clone(), &server, clock.clone(), tasks);
                let (source, anonymous) = loaded.map_err(invalid("authentication-config"))?;
                (Some(Arc::new(source)), anonymous)
            }
        };
        let anonymous = match (anonymous_in_file, self.anonymous_auth) {
            (Some(_), Some(_)) => {
                let reason =
                    "it cannot be set when the authentication configuration sets anonymous";
                return Err(invalid("anonymous-auth")(reason.to_owned()));
            }
            (Some(anonymous), None) => anonymous,
            (None, enabled) => {
                Anonymous { enabled: enabled.unwrap_or(true), ..Anonymous::default() }
            }
        };
        if let Some(request_header) = &self.request_header {
            let invalid = invalid("requestheader-client-ca-file");
            let pool = CertPool::from_pem(request_header.client_ca.as_bytes());
            if pool.map_err(|error| invalid(error.to_string()))?.is_empty() {
                return Err(invalid("it contains no PEM of a certificate".to_owned()));
            }
        }
        let key = self.service_account_signing_key.as_deref().unwrap_or(generated_key);
        let signer = Signer::from_pem(key).map_err(invalid("service-account-signing-key-file"))?;
        let mut keys = Vec::new();
        for pem in &self.service_account_keys {
            let public_keys = PublicKey::all_from_pem(pem.as_bytes());
            keys.extend(public_keys.map_err(invalid("service-account-key-file"))?);
        }
        let audiences =
            if self.api_audiences.is_empty() { issuers.clone() } else { self.api_audiences };
        let default_uri = || format!("https://{advertised}/openid/v1/jwks");
        let jwks_uri = self.service_account_jwks_uri.unwrap_or_else(default_uri);
        let options = ServiceAccountOptions { signer, keys, issuers, audiences, jwks_uri };
        Ok(Authenticator {
            static_tokens,
            service_accounts: ServiceAccounts::new(options),
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            jwt,
            anonymous,
            front_proxy: self.request_header,
        })
    }
}

impl fmt::Debug for AuthenticationOptions {
    /// Formats the options without the signing key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticationOptions")
            .field("authentication_config", &self.authentication_config)
            .field("anonymous_auth", &self.anonymous_auth)
            .field("enable_bootstrap_token_auth", &self.enable_bootstrap_token_auth)
            .field("service_account_issuers", &self.service_account_issuers)
            .field("api_audiences", &self.api_audiences)
            .field("request_header", &self.request_header)
            .finish_non_exhaustive()
    }
}
