//! Custom resources: CustomResourceDefinitions add resource types to the table while the server runs.
//!
//! Each established CustomResourceDefinition becomes a `Definition`. Each of its versions is a resource type with its
//! own [`strategy`]. The [`crd_controller`] writes conditions, updates the table, and deletes a definition's objects
//! before the definition.

pub(crate) mod codec;
pub(crate) mod conversion;
pub(crate) mod crd_controller;
mod resource_types;
pub(crate) mod served;
mod strategy;
