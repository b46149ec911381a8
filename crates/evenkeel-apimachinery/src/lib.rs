//! What holds for objects of every kind: schemas, decoding, managed fields, patches, metadata, statuses and encodings.
//!
//! Everything here is a function of its arguments. It knows no store, no request and no rule of one kind: defaults and
//! validation of built-in kinds live in `evenkeel-kinds`, those of custom resources in `evenkeel-apiextensions`.

pub mod amount;
pub mod decode;
pub mod depth;
pub mod encode;
pub mod group_version;
pub mod headers;
pub mod managed;
pub mod patch;
pub mod reset;
pub mod schema;
pub mod status;
pub mod time;
pub mod user;
pub mod validation;
pub mod value;
