//! Wiring that all controllers share: descriptors, and the watches of all discovered resources. It makes no decisions
//! for a controller.

pub mod descriptor;
pub mod monitors;
mod watch_changes;
