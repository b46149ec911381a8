//! The secure port: health, metrics and introspection over TLS, for those who may see them.
//!
//! Who asks is found out, and whether they may, as upstream's programs do it: certificates of clients and of proxies are
//! believed as files or the cluster say, the cluster is asked of tokens and rights (TokenReview and SubjectAccessReview),
//! with its answers remembered for a while; some paths are open to all.

mod answer;
mod authenticate;
mod authorize;
mod cluster;
mod guard;
mod headers;
mod metrics;
pub mod negotiate;
mod passes;
mod reviews;
mod routes;
mod server;
mod tls;
mod trust;
mod user;

pub use answer::{answer, plain, status};
pub use authorize::{OpenPathError, OpenPaths};
pub use cluster::{Lookup, LookupError, Wanted};
pub use guard::Guard;
pub use metrics::Metrics;
pub use reviews::{ReviewTimes, Reviews};
pub use routes::Routes;
pub use server::{ServerOptions, listen, serve};
pub use tls::{Certificate, Identity, NamedFiles, REREAD, Tls, TlsError, TlsSettings, TrustFiles};
pub use trust::{Anchors, Authority, ProxyHeaders, Trust};
pub use user::User;
