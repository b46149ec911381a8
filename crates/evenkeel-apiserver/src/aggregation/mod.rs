//! Aggregation of extension API servers: APIServices, whether their servers are available, requests to them, and their
//! documents.
//!
//! | upstream | where |
//! |---|---|
//! | `APIServiceRegistrationController`, `autoRegisterController` | `controller.rs`, `registration.rs` |
//! | `AvailableConditionController` | `checker.rs`, `availability.rs`, `probe.rs` |
//! | `proxyHandler` | `forward.rs` |
//! | `discoveryManager`, `AggregationController` | `fetcher.rs`, `discovery.rs`, `../discovery`, `../openapi` |
//!
//! Upstream: `k8s.io/kube-aggregator`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

mod availability;
pub(crate) mod checker;
mod client;
mod condition;
pub(crate) mod controller;
pub(crate) mod discovery;
pub(crate) mod fetcher;
pub(crate) mod forward;
mod probe;
pub(crate) mod registration;
pub(crate) mod remotes;
mod schedule;
mod user;

use tokio::time::Instant;

/// Sleeps until this time, or forever if there is none.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
