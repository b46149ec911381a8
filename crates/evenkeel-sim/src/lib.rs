//! Deterministic simulation: the whole control plane on one thread in virtual time.
//!
//! A [`World`] is an embedded API server with controllers, scheduler and nodes around it, each part on a wire of its own
//! that records every write and makes go wrong what a [`Faults`] says. A seed reproduces a run to the letter.
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

pub use faults::{Fault, Faults, What};
pub use parts::Cloud;
pub use pods::{Count, PodWatch};
pub use record::{Log, Outcome, Write};
pub use requests::Requests;
pub use world::{Options, World, simulate};

/// A part of the control plane that has a wire, and a life, of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All controllers: one process.
    Controllers,
    /// The controllers of a cloud: a process of their own.
    Cloud,
    /// One of several controller managers of which the holder of the lease works.
    Replica(u8),
    /// The scheduler's process.
    Scheduler,
    /// All simulated nodes.
    Nodes,
    /// Who asks for things: the test itself.
    User,
    /// Client of an observer, which only reads.
    Observer,
}
