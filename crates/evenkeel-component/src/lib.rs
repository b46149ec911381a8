//! What every program needs around its controllers: flags, shared options, logs, secure serving with delegated
//! authentication and authorization, the start of controllers under one lease or two.

pub mod command_line;
pub mod connection;
pub mod features;
pub mod flags;
pub mod leading;
pub mod logging;
pub mod metrics;
pub mod migration;
pub mod options;
pub mod process;
#[cfg(test)]
mod scripted;
pub mod secure_serving;
pub mod serving;
pub mod version;
pub mod worker;

/// Samples who asks for memory, for `/debug/pprof/heap`.
#[cfg(feature = "heap-profile")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
