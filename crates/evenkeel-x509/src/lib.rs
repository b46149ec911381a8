//! Verification of peers' certificates for rustls by the rules of Go's `crypto/x509`, and private keys
//! ([`keys`]).
//!
//! webpki, which rustls calls, refuses a CA certificate as the certificate of a server or client. Go accepts
//! one that is itself in the pool of roots. Users rely on that: `openssl req -x509` makes a self-signed CA
//! certificate, and users copy it into a webhook's `caBundle`. webpki alone verifies a certificate that is not
//! in the pool.
//!
//! | Go's `Certificate.Verify` | Evenkeel |
//! |---|---|
//! | `opts.Roots.contains(c)`: the chain is the certificate alone | [`CertPool`], `leaf::verify_root` |
//! | `isValid(leafCertificate)`: validity, unhandled critical extensions | `leaf::verify_root` |
//! | `VerifyHostname`: alternative names only | `server::ServerVerifier` |
//! | `checkChainForKeyUsage` | `leaf::Usage` |
//! | error messages | [`mod@message`] |

mod client;
pub mod keys;
mod leaf;
mod message;
mod pool;
mod server;

pub use message::message;
pub use pool::{CertPool, PoolError};
