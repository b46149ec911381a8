//! The drop-in kube-scheduler: queue, node table, framework, plugins.
//!
//! An attempt to find a node is [`schedule::schedule`], a pure function of plugins, node table, pod and seed that says of each
//! node it rejects why. Around it stands a state machine without I/O (`core`: queue and table), and around that one loop
//! ([`run`]) that takes in what the caches tell, and has bindings on their way while it tries the next pod.
//!
//! Plugins take part in upstream's extension points; see [`framework`] for writing one's own:
//!
//! ```
//! use evenkeel_scheduler::{
//!     SchedulerOptions,
//!     framework::{CycleState, Filter, Filtered, Plugin, Profile, Rejection},
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
//!     fn filter(&self, _: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> Filtered {
//!         match node.node().meta.labels.get("works") {
//!             Some("weekends") => Err(Rejection::unresolvable("node(s) had a day off")),
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
pub mod program;
mod queue;
pub mod resources;
mod run;
pub mod schedule;
#[cfg(test)]
mod scripted;
pub mod simulate;
mod telling;

pub use options::{DEFAULT_SCHEDULER, SchedulerOptions};
pub use run::run;
