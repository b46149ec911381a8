//! Custom resources: definitions become rows of the resource table while the server runs.
//!
//! A `Definition` is made of each CustomResourceDefinition that is established; its versions are rows as any other,
//! with [`hooks::Hooks`] for rules. The [`crd_controller`] follows the definitions: it writes their conditions, keeps the table,
//! and takes the objects of a definition away before it goes.

pub(crate) mod conversion;
pub(crate) mod crd_controller;
mod definition;
pub(crate) mod definitions;
mod hooks;

pub(crate) use definition::Version;

/// Where definitions are stored.
pub(crate) const RESOURCE_PREFIX: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// Keeps a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
