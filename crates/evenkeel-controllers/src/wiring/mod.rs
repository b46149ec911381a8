//! Wiring that all controllers share: descriptors, and the watches that follow discovery. It makes no decisions for a
//! controller.

pub mod descriptor;
pub mod monitors;
mod watch_changes;
