//! What each controller decides and does.

pub mod apps;
pub mod batch;
pub mod core;
pub mod descriptor;
pub mod monitors;
pub mod needs;
pub mod options;

mod children;
mod claim;
mod conditions;
mod disruption;
#[cfg(test)]
mod fixtures;
mod owned;
mod pods;
mod victims;
mod wire;
mod words;
