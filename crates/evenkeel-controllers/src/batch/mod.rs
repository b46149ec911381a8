//! Controllers of work that ends: Jobs.

pub mod cron_job;
pub mod job;
pub mod ttl_after_finished;
