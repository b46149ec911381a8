//! The drop-in kube-controller-manager: options, start order, credentials.

pub mod controllers;
pub mod options;
pub mod plan;
mod program;

pub use program::main;
