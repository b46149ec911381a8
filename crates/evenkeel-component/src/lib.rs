//! Common parts of the programs: flags, options, logs, secure serving, leader election and migration, and the
//! start of controllers (upstream: `component-base`, `controller-manager`).

pub mod command_line;
pub mod connection;
pub mod count;
pub mod features;
pub mod flags;
pub mod leading;
pub mod logging;
pub mod metrics;
pub mod migration;
pub mod options;
pub mod process;
pub mod serving;
pub mod version;
pub use evenkeel_runtime::{secure_serving, worker};

/// Allocator that samples allocations for `/debug/pprof/heap`.
#[cfg(feature = "heap-profile")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
