//! Validation of CustomResourceDefinitions, and warnings for their writes.
//!
//! Upstream: `apis/apiextensions/validation`.

mod cel;
mod declared;
mod defaults;
mod schema;
mod structural;
pub mod validation;
pub mod warnings;
