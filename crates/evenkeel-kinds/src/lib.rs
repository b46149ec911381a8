//! Built-in kinds: defaults, validation, strategies, warnings and table columns.
//!
//! All functions are pure. Rules that read the store or allocate addresses or quota are in `evenkeel-apiserver`.
//! Rules for all kinds are in `evenkeel-apimachinery`.

pub mod app_armor;
pub mod autoscaling;
mod certificatesigningrequest;
pub mod defaults;
mod disabled_fields;
mod internal;
mod job;
pub mod names;
mod persistentvolumeclaim;
pub mod pod;
mod pod_label_keys;
mod pod_resize;
mod pod_resources;
pub mod printers;
pub mod registry;
pub mod resourceclaim;
pub mod scale;
pub mod service;
pub mod strategy;
pub mod validation;
pub mod warnings;
