//! Machinery for objects of every kind: schemas, decoding, managed fields, patches, metadata, statuses and encodings.
//!
//! All functions are pure: they access no store and no request, and contain no rules of a single kind. Defaults and
//! validation of built-in kinds are in `evenkeel-kinds`, those of custom resources in `evenkeel-apiextensions`.
//!
//! Upstream: `k8s.io/apimachinery`.

pub mod amount;
pub mod decode;
pub mod depth;
pub mod diff;
pub mod encode;
#[doc(hidden)]
pub mod fuzz;
pub mod go_text;
pub mod group_version;
pub mod headers;
pub mod managedfields;
pub mod patch;
pub mod reset;
pub mod schema;
pub mod status;
pub mod time;
pub mod user;
pub mod validation;
pub mod value;
