//! Options that several programs share, validated by upstream's rules and mostly with upstream's messages.

mod client;
mod leader_election;
mod logging;
mod metrics;
mod serving;
mod tls;

pub use client::ClientOptions;
pub use leader_election::LeaderElectionOptions;
pub use logging::{Format, LoggingOptions};
pub use metrics::MetricsOptions;
pub use serving::{RequestHeader, ServingOptions};
pub use tls::{NamedCertificate, TlsOptions, TlsVersion};
