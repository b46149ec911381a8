//! Wiring that all controllers share: what starts them, and the watches that follow discovery. Nothing here decides for a
//! controller.

pub mod descriptor;
pub mod monitors;
mod watch_changes;
