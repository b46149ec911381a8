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
mod invariants;
mod metrics;
pub mod part;
mod parts;
mod pods;
mod world;

pub use evenkeel_test::simulation::{
    Fault, FaultKind, Faults, Log, Outcome, Part, Requests, Write,
};
pub use parts::Cloud;
pub use pods::{Count, PodWatch};
pub use world::{Options, World, simulate};
