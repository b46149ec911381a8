//! Controller runtime: clients, shared caches, workqueues, controllers, leader election, events, health checks and
//! metrics. A [`manager::Manager`] runs them.

pub mod cache;
pub mod client;
pub mod clock;
pub mod controller;
pub mod discovery;
pub mod events;
pub mod health;
pub mod introspect;
pub mod latch;
pub mod leaderelection;
pub mod manager;
pub mod metrics;
pub mod operator;
pub mod plan;
pub mod prelude;
pub mod queue;
pub mod response;
pub mod sharding;
pub use evenkeel_tasks as tasks;
pub mod worker;

#[cfg(any(test, feature = "test-util"))]
pub mod scripted;
#[cfg(feature = "serve")]
pub mod secure_serving;
#[cfg(feature = "webhook")]
pub mod webhook;

/// Examples of the page on operators, which run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/operators.md")]
struct OperatorsPage;
