//! Controllers, scheduler and simulated nodes beside an API server, for `evenkeel up` and tests.

pub mod explain;
pub mod kubelet_api;
pub mod metrics_api;
pub mod plane;
pub mod schedule;
