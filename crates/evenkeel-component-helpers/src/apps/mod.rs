//! Rules of workloads that other components need besides the workload's controller.

pub mod daemonset;
