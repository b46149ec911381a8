//! What every program has around its work: flags, options that several have, logs, secure serving.

pub mod connection;
pub mod features;
pub mod flags;
pub mod logging;
pub mod metrics;
pub mod options;
pub mod serving;
pub mod version;

/// Samples who asks for memory, for `/debug/pprof/heap`.
#[cfg(feature = "heap-profile")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
