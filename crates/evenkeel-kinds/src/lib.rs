//! Built-in kinds: defaults, validation, strategies, warnings and table columns of each.
//!
//! Pure functions of objects. Rules that read the store or allocate (addresses, quotas) live in `evenkeel-apiserver`; what
//! holds for every kind lives in `evenkeel-apimachinery`.

pub mod autoscaling;
mod certificatesigningrequest;
pub mod defaults;
mod disabled_fields;
mod internal;
mod job;
mod persistentvolumeclaim;
pub mod pod;
pub mod printers;
pub mod registry;
pub mod resourceclaim;
pub mod scale;
pub mod service;
pub mod strategy;
pub mod validation;
pub mod warnings;
