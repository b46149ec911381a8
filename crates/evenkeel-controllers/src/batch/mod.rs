//! Controllers of the API group `batch`.

pub mod cronjob;
pub mod job;
pub mod ttlafterfinished;
