//! API Priority and Fairness: limits concurrent requests by priority level, so that no level starves another. Each
//! level divides its seats fairly among its flows.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Long-running requests other than watches are exempt | `limiter::is_long_running` |
//! | FlowSchemas, their order, and their matching | `config::digest`, `rule::Rule` |
//! | A request that no other FlowSchema matches belongs to `catch-all` | `limiter::classify` |
//! | Seats of a level, lent and borrowed | `allocation::borrow` |
//! | Seats of a request | `estimate::WorkEstimate`, `watches::WatchTracker` |
//! | Queues, shuffle sharding, fair queuing | `queueset::QueueSet`, `sharding::Dealer` |
//! | A request waits for at most a quarter of its timeout | `limiter::wait_limit` |
//! | 429 with Retry-After | `dropped::DroppedRequests`, `limiter::Rejection` |
//! | `--max-requests-inflight`, `--max-mutating-requests-inflight` without priority and fairness | `limiter::start_in_flight` |
//! | `apiserver_flowcontrol_*` | `stats::FlowStats`, `metrics::render` |
//!
//! Only `limiter`, `level` and `watches` have side effects.

mod allocation;
mod config;
mod dropped;
mod estimate;
mod integrator;
mod level;
mod limiter;
mod metrics;
mod queueset;
mod rule;
mod sharding;
mod stats;
mod watches;

pub(crate) use config::dangling_condition;
pub(crate) use estimate::ObjectStats;
pub(crate) use level::{Permit, RequestDigest};
pub(crate) use limiter::{Admission, Flows, Options, Rejection, is_long_running, wait_limit};
