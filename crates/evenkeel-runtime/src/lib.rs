//! How a controller lives: clients, shared caches, queues, workers, expectations, leader election, events, health
//! and metrics, brought together by a [`manager::Manager`].

pub mod plan;
