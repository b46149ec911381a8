//! Controllers of volumes: what binds, protects, makes, grows and attaches them.

pub mod attach_detach;
pub mod attributes_class_protection;
pub mod binder;
pub mod claim_protection;
pub mod ephemeral_volume;
pub mod expander;
pub mod volume_protection;

mod finalizers;
