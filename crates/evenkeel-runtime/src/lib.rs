//! Controller runtime: clients, shared caches, workqueues, controllers, leader election, events, health checks and
//! metrics. A [`manager::Manager`] runs them.
//!
//! An operator begins with the [`prelude`]. It chooses the version of Kubernetes' types, as any program on kube-rs does: by a
//! feature of `k8s-openapi`, from `v1_33` on.

pub mod cache;
pub mod client;
pub mod clock;
pub mod clusters;
pub mod controller;
pub mod discovery;
pub mod events;
mod fast_map;
pub mod health;
pub mod introspect;
pub mod latch;
pub mod leaderelection;
pub mod manager;
pub mod metrics;
pub mod operator;
pub mod permissions;
pub mod plan;
pub mod prelude;
pub mod queue;
pub mod response;
pub mod retry;
pub mod sharding;
pub mod source;
pub use evenkeel_tasks as tasks;
pub mod worker;
// Types of these crates are in this crate's signatures. The re-exports have the right versions.
pub use {
    bytes, evenkeel_api as api, futures, http, jiff, k8s_openapi, kube, prometheus, serde_json,
    tokio_util,
};

#[cfg(any(test, feature = "test-util"))]
pub mod scripted;
#[cfg(feature = "serve")]
pub mod secure_serving;
#[cfg(feature = "otel")]
pub mod telemetry;
#[cfg(feature = "webhook")]
pub mod webhook;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/operators.md")]
pub mod guide {}
