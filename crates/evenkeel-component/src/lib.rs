//! What every program has around its work: flags, options that several have, logs, secure serving.

pub mod features;
pub mod flags;
pub mod logging;
pub mod metrics;
pub mod options;
pub mod serving;
pub mod version;
