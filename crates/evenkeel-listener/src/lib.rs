//! Connections of an HTTP server: accepts them within limits and serves HTTP/1.1 and HTTP/2 with deadlines.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Connections in total and per peer; accepting continues after every error | `accept::Listener` |
//! | `ReadHeaderTimeout`: 32 s, `IdleTimeout`: 90 s | `watchdog::Watchdog` |
//! | `MaxConcurrentStreams`, windows, header lists, resets of HTTP/2 | `connection::serve` |
//! | TCP keep-alive | `accept::Listener` |
//! | `ErrAbortHandler` | `abort::AbortResponse` |
//! | Dual-stack ports; plain HTTP on a port of TLS | `listen::listen`, `listen::refuse_plain_http` |
//!
//! Handlers enforce the deadlines of their requests. Upstream: `SecureServingInfo.Serve`.

mod abort;
mod accept;
mod activity;
mod connection;
mod listen;
mod peers;
mod watchdog;

pub use abort::AbortResponse;
pub use accept::{Accepted, Listener};
pub use connection::{ConnectionError, HttpOptions, Protocol, serve};
pub use listen::{listen, refuse_plain_http};
pub use peers::{ConnectionLimits, ConnectionSlot};

/// Limit on the time of a TLS handshake: as long as Kubernetes' clients wait for one.
pub const TLS_HANDSHAKE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
