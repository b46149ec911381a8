//! The secure port: health, metrics and introspection over TLS, with delegated authentication and authorization.
//!
//! Client certificates and the front proxy's certificate are verified with files or the ConfigMap
//! `extension-apiserver-authentication`. The API server verifies tokens and permissions (TokenReview,
//! SubjectAccessReview), and its results are cached. Some paths need no authorization.
//!
//! Upstream: `DelegatingAuthenticatorConfig`, `DelegatingAuthorizerConfig`, `SecureServingInfo`.

mod accept;
mod answer;
mod authentication;
mod authorization;
mod cluster_authentication;
mod guard;
mod headers;
mod metrics;
pub mod negotiate;
#[cfg(feature = "pprof")]
pub mod pprof;
mod reviews;
mod routes;
mod server;
mod sync_queue;
mod tls;
mod trust;
mod user;

#[cfg(feature = "webhook")]
pub(crate) use accept::{Server, handshake};
pub use answer::{answer, plain, status};
pub use authorization::{AlwaysAllowPathError, AlwaysAllowPaths};
pub use cluster_authentication::{
    ClientCaSources, ClusterAuthentication, ClusterAuthenticationError,
};
pub use evenkeel_listener::listen;
pub use guard::Guard;
pub use metrics::Metrics;
pub use reviews::{ReviewCacheTtls, ReviewClient};
pub use routes::Routes;
pub use server::{ServerOptions, serve, serve_plain};
pub use tls::{Certificate, Identity, NamedFiles, REREAD, Tls, TlsError, TlsSettings, TrustFiles};
pub use trust::{Anchors, Authority, ProxyHeaders, Trust};
pub use user::User;
