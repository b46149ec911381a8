//! Validation that is the same for every kind: names, labels, metadata, and where a webhook is.

pub mod errors;
pub mod labels;
pub mod metadata;
pub mod webhook;

pub use errors::{Errors, Path};
pub use evenkeel_api::forms as names;
