//! Custom resources: validation of definitions, structural schemas, pruning, defaulting and validation of objects.
//!
//! All functions are pure. The controllers of definitions, the resource table and the client of conversion webhooks
//! are in `evenkeel-apiserver`.
//!
//! Upstream: `k8s.io/apiextensions-apiserver`.

pub mod cel;
pub mod conditions;
pub mod conversion;
pub mod defaulting;
pub mod definition;
mod field_path;
pub mod jsonpath;
pub mod listtype;
pub mod objectmeta;
pub mod pruning;
pub mod scale;
pub mod structural;
pub mod tableconvertor;
pub mod validation;
