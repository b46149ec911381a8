//! What is particular about each built-in kind: defaults, validation, strategy, warnings and printed columns.
//!
//! Pure functions of objects. Rules that read the store or allocate (addresses, quotas) live in `evenkeel-apiserver`; what
//! holds for every kind lives in `evenkeel-apimachinery`.

pub mod autoscaling;
pub mod defaults;
mod jobs;
pub mod pods;
pub mod printers;
pub mod rows;
pub mod scale;
mod signing_requests;
pub mod strategy;
pub mod validate;
pub mod warnings;
