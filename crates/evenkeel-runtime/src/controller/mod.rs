//! Runs controllers: from cache events to keys, from keys to plans, from plans to writes.
//!
//! A controller is declared with a [`Builder`]: the kind it reconciles, what it owns, what else it watches. It then runs
//! either a pure [`crate::plan::Planner`] ([`Builder::planned`]) or an async function ([`Builder::reconcile`]), under the
//! same queue, span, metrics and panic guard. A key is not planned again before its caches show what its own writes did.

mod barrier;
mod build;
mod enqueue;
mod env;
mod execute;
mod inspect;
mod memory;
mod metrics;
mod pass;
mod periodic;
mod reconcile;
mod rewrite;
mod run;
mod slow_start;
mod status_throttle;
mod track;

pub use build::Builder;
pub use enqueue::Enqueue;
pub use env::Env;
pub use metrics::Metrics;
pub use periodic::Periodic;
pub use reconcile::{Context, Error, Outcome, Request};
pub use rewrite::rewrite;
pub use run::Controller;
