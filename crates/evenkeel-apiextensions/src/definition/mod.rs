//! Validation of CustomResourceDefinitions, and the warnings that their writes return.
//!
//! Upstream: `apis/apiextensions/validation`.

mod cel;
mod schema;
mod structural;
pub mod validation;
pub mod warnings;
