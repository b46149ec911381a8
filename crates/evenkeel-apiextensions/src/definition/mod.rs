//! What is wrong with a CustomResourceDefinition, and what its writer is warned of (upstream:
//! `apis/apiextensions/validation`).

pub mod check;
mod rules;
mod schema;
mod structural;
pub mod warnings;
