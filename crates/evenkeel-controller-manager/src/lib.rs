//! The drop-in kube-controller-manager: options, start order, serving, logging.

pub mod controllers;
mod credentials;
pub mod flags;
pub mod logging;
pub mod options;
mod program;
pub mod serving;

pub use program::main;
