//! Controllers of work that ends: Jobs.

pub mod cronjob;
pub mod job;
pub mod ttlafterfinished;
