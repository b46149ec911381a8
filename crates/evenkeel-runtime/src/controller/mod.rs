//! Controllers: events enqueue keys, passes over keys (reconciles) create plans, and the executor sends their writes.
//!
//! A [`Builder`] declares a controller: the kind that it reconciles, the kinds that it owns, and the other kinds that
//! it watches. The controller runs a pure [`crate::plan::Planner`] ([`Builder::planned`]) or an async function
//! ([`Builder::reconcile`]). Both have the same queue, tracing span, metrics and panic guard. The next pass over a key
//! starts only after the caches show the key's own writes.

mod barrier;
mod build;
mod causes;
mod enqueue;
mod env;
mod execute;
mod failures;
mod inspect;
mod late;
mod memory;
mod metrics;
mod pass;
mod periodic;
mod reconcile;
mod rewrite;
mod run;
mod shards;
mod slow_start;
mod status_throttle;
mod track;
mod watched;

pub use build::Builder;
pub(crate) use build::owner_keys;
pub use enqueue::Enqueue;
pub use env::Env;
pub(crate) use late::{EventFilter, LateWatch, LateWatches};
pub use metrics::Metrics;
pub use periodic::Periodic;
pub use reconcile::{Context, Error, Outcome, Request};
pub use rewrite::rewrite;
pub use run::{Controller, ReconcilePanicked};
pub(crate) use watched::ControllerCaches;
