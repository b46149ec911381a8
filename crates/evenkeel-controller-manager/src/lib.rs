//! Drop-in replacement of kube-controller-manager: options, start order and credentials.

mod console;
pub mod controllers;
pub mod offline;
pub mod options;
pub mod plan;
#[cfg(feature = "console")]
pub mod preview;
mod program;

pub use program::{METRICS_TABLE, main};
