//! Custom resources: validation of definitions, structural schemas, pruning, defaulting and validation of objects.
//!
//! Pure functions of definitions and objects. The controllers of definitions, their entries in the resource table, and
//! the call of conversion webhooks are in `evenkeel-apiserver`.
//!
//! Upstream: `k8s.io/apiextensions-apiserver`.

pub mod cel;
pub mod conditions;
pub mod conversion;
pub mod defaulting;
pub mod definition;
pub mod jsonpath;
pub mod listtype;
pub mod objectmeta;
pub mod pruning;
pub mod scale;
pub mod structural;
pub mod tableconvertor;
pub mod validation;
