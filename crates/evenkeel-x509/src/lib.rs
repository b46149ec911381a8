//! Verification of peers' certificates by the rules of Go's `crypto/x509`, for rustls; and private keys ([`keys`]).
//!
//! webpki, which rustls asks, takes no certificate of a CA for that of a server or client. Go does when the certificate itself
//! is in the pool of roots, and users rely on it: a self-signed certificate that `openssl req -x509` makes is one of a CA,
//! and goes into a webhook's `caBundle` as it is. A certificate that is not in the pool is verified by webpki alone.
//!
//! | Go's `Certificate.Verify` | here |
//! |---|---|
//! | `opts.Roots.contains(c)`: the chain is the certificate alone | [`CertPool`], `leaf::verify_root` |
//! | `isValid(leafCertificate)`: validity, unhandled critical extensions | `leaf::verify_root` |
//! | `VerifyHostname`: alternative names only | `server::ServerVerifier` |
//! | `checkChainForKeyUsage` | `leaf::Usage` |
//! | texts of errors | [`mod@message`] |

mod client;
pub mod keys;
mod leaf;
mod message;
mod pool;
mod server;

pub use message::message;
pub use pool::{CertPool, PoolError};
