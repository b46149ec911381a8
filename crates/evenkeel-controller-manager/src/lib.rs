//! The drop-in kube-controller-manager: options, start order, credentials.

mod connection;
pub mod controllers;
mod credentials;
mod leading;
mod migration;
pub mod options;
pub mod plan;
mod program;

pub use program::main;
