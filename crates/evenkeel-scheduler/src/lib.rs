//! The scheduler as a library: scheduling queue, node table, scheduling framework, plugins.
//!
//! [`schedule::schedule`] makes one attempt to find a node. It is a pure function of profile, nodes, pod and seed, and
//! returns the status of each rejected node. `core` adds queue and nodes around it, as a state machine without I/O.
//! [`run()`] drives `core`: it handles cache events, and runs binding cycles concurrently with attempts. The program
//! `evenkeel-kube-scheduler` adds the command line, the configuration file and the secure port.
//!
//! Plugins implement upstream's extension points. See [`framework`] for how to write one:
//!
//! ```
//! use evenkeel_scheduler::{
//!     SchedulerOptions,
//!     framework::{CycleState, Filter, StatusResult, Plugin, Profile, Status},
//!     nodes::NodeRef,
//!     pod::PodInfo,
//! };
//! use std::sync::Arc;
//!
//! struct Weekdays;
//!
//! impl Plugin for Weekdays {
//!     fn name(&self) -> &'static str {
//!         "Weekdays"
//!     }
//!     fn as_filter(&self) -> Option<&dyn Filter> {
//!         Some(self)
//!     }
//! }
//!
//! impl Filter for Weekdays {
//!     fn filter(&self, _: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
//!         match node.node().meta.labels.get("works") {
//!             Some("weekends") => Err(Status::unresolvable("node(s) had a day off")),
//!             _ => Ok(()),
//!         }
//!     }
//! }
//!
//! let profile = Profile::with_defaults("default-scheduler").with(Arc::new(Weekdays), 0);
//! let options = SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() };
//! # assert_eq!(options.profiles.len(), 1);
//! ```

mod bind;
mod condition;
mod core;
pub mod explain;
pub mod extender;
#[cfg(test)]
mod fixtures;
pub mod framework;
mod metrics;
pub mod nodes;
mod options;
pub mod plugins;
pub mod pod;
mod queue;
pub mod resources;
mod run;
pub mod schedule;
#[cfg(test)]
mod scripted;
pub mod simulate;
mod status_patcher;
mod stopwatch;

pub use options::{DEFAULT_SCHEDULER, SchedulerOptions};
pub use run::{StandbyScheduler, run};

/// Upstream's metadata of the scheduler's metrics: name, type, stability level, labels and buckets.
pub const METRICS_TABLE: &str = include_str!("../data/metrics.tsv");
