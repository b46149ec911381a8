//! Deterministic simulation: the whole control plane on one thread in virtual time.
//!
//! A [`World`] has an embedded API server with controllers, scheduler and nodes around it. Each part has its own
//! wire, which records every write and injects the faults of [`Faults`]. A seed reproduces a run exactly.
//!
//! ```
//! use evenkeel_sim::{Options, simulate};
//! use serde_json::json;
//! use std::time::Duration;
//!
//! let nodes = simulate(Options::default(), async |world| {
//!     world.settle(Duration::from_secs(30)).await;
//!     world.list("/api/v1/nodes").await.len()
//! });
//! assert_eq!(nodes, 3);
//! ```

pub mod explore;
mod faults;
mod metrics;
mod parts;
mod pods;
mod record;
mod requests;
mod wire;
mod world;

pub use faults::{Fault, FaultKind, Faults};
pub use parts::Cloud;
pub use pods::{Count, PodWatch};
pub use record::{Log, Outcome, Write};
pub use requests::Requests;
pub use world::{Options, World, simulate};

/// Part of the control plane, with its own wire and lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All controllers, in one process.
    Controllers,
    /// Cloud controller manager, in a process of its own.
    Cloud,
    /// One of several controller managers with leader election: only the leader works.
    Replica(u8),
    /// Scheduler, in a process of its own.
    Scheduler,
    /// All simulated nodes.
    Nodes,
    /// User of the API: the test itself.
    User,
    /// Client of the test's observer, which only reads.
    Observer,
}
