//! Custom resources: checks of definitions, structural schemas, pruning, defaults and validation (upstream:
//! `apiextensions-apiserver`).
//!
//! Pure functions of definitions and objects. The controller of definitions, the rows that they become, and the call of a
//! conversion webhook live in `evenkeel-apiserver`.

pub mod columns;
pub mod conditions;
pub mod conversion;
pub mod defaulting;
pub mod definition;
pub mod embedded;
pub mod jsonpath;
pub mod lists;
pub mod node;
pub mod pruning;
pub mod rules;
pub mod scale;
pub mod validate;
