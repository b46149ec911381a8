//! What each controller decides and does.

pub mod core;
