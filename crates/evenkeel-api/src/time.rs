//! Times as the API writes them.

pub use jiff::{SignedDuration, Timestamp};
