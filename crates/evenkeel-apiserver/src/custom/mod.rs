//! Custom resources: definitions become rows of the resource table while the server runs.
//!
//! A `Definition` is made of each CustomResourceDefinition that is established; its versions are rows as any other, with a
//! [`strategy`] of their own. The [`crd_controller`] follows the definitions: it writes their conditions, keeps the table, and
//! deletes the objects of a definition before it goes.

pub(crate) mod codec;
pub(crate) mod conversion;
pub(crate) mod crd_controller;
mod resource_types;
pub(crate) mod served;
mod strategy;
