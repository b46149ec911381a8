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
