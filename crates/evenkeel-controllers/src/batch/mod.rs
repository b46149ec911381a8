//! Controllers of work that ends: Jobs.

pub mod job;
