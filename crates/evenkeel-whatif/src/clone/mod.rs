//! Reads the objects of a cluster, without secrets and without objects that change all the time.

mod filter;
mod read;

pub use filter::{CloneOptions, keep};
pub use read::{Cloned, Skipped, read};
