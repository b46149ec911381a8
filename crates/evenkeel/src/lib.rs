//! Evenkeel's parts put together: what `evenkeel up` runs beside an API server, for programs and tests.

pub mod explain;
pub mod metrics_api;
pub mod plane;
pub mod schedule;
