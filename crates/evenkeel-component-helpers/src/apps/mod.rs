//! Rules of workloads that more than their controller needs.

pub mod daemonset;
