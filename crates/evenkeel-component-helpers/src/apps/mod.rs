//! Rules of workloads that are not only used by their controller.

pub mod daemonset;
