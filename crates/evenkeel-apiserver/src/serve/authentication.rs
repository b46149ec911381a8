//! Options of authentication.

use std::fmt;
use std::net::SocketAddr;

use crate::auth::{
    Anonymous, Authenticator, PublicKey, RequestHeaderOptions, ServiceAccountOptions,
    ServiceAccounts, Signer, StaticTokens, configure,
};

use evenkeel_x509::CertPool;

/// Default issuer of service account tokens.
const ISSUER: &str = "https://kubernetes.default.svc";

/// Options of authentication, named after kube-apiserver's flags.
#[derive(Clone, Default)]
pub struct AuthenticationOptions {
    /// Text of an `AuthenticationConfiguration` (`--authentication-config`): issuers of JSON web tokens, and anonymous
    /// requests.
    pub authentication_config: Option<String>,
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
    /// Issuer URLs of service account tokens: that of new tokens first, then other accepted ones
    /// (`--service-account-issuer`). Default: `https://kubernetes.default.svc`.
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
    /// Builds the authenticator. `own_key` signs tokens unless another key is set. An error has the option's name and
    /// the reason.
    pub(super) fn build(
        self,
        static_tokens: StaticTokens,
        own_key: &str,
        advertised: SocketAddr,
    ) -> Result<Authenticator, (&'static str, String)> {
        let refused = |setting| move |why: String| (setting, why);
        let issuers = match self.service_account_issuers {
            none if none.is_empty() => vec![ISSUER.to_owned()],
            issuers => issuers,
        };
        if issuers.iter().any(String::is_empty) {
            return Err(refused("service-account-issuer")("it must not be empty".to_owned()));
        }
        let configured = match &self.authentication_config {
            None => None,
            Some(text) => Some(
                configure(text.as_bytes(), &issuers).map_err(refused("authentication-config"))?,
            ),
        };
        let (jwt, in_file) = configured.map_or_else(Default::default, |c| (c.jwt, c.anonymous));
        let anonymous = match (in_file, self.anonymous_auth) {
            (Some(_), Some(_)) => {
                let why = "it cannot be set when the authentication configuration sets anonymous";
                return Err(refused("anonymous-auth")(why.to_owned()));
            }
            (Some(anonymous), None) => anonymous,
            (None, enabled) => {
                Anonymous { enabled: enabled.unwrap_or(true), ..Anonymous::default() }
            }
        };
        if let Some(request_header) = &self.request_header {
            let refused = refused("requestheader-client-ca-file");
            let pool = CertPool::from_pem(request_header.client_ca.as_bytes());
            if pool.map_err(|error| refused(error.to_string()))?.is_empty() {
                return Err(refused("it contains no PEM of a certificate".to_owned()));
            }
        }
        let key = self.service_account_signing_key.as_deref().unwrap_or(own_key);
        let signer = Signer::from_pem(key).map_err(refused("service-account-signing-key-file"))?;
        let mut keys = Vec::new();
        for pem in &self.service_account_keys {
            let all = PublicKey::all_from_pem(pem.as_bytes());
            keys.extend(all.map_err(refused("service-account-key-file"))?);
        }
        let audiences =
            if self.api_audiences.is_empty() { issuers.clone() } else { self.api_audiences };
        let own_uri = || format!("https://{advertised}/openid/v1/jwks");
        let jwks_uri = self.service_account_jwks_uri.unwrap_or_else(own_uri);
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
