//! Validation rules that all kinds share: names, labels, metadata, and client configurations of webhooks.

pub mod errors;
pub mod labels;
pub mod metadata;
pub mod webhook;

pub use errors::{Errors, Path};
pub use evenkeel_api::forms as names;
