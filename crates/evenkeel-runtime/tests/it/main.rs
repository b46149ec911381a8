//! The runtime against a small scripted API server, in paused time.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod controller;
mod coordinated;
mod events;
mod leaderelection;
mod manager;
mod server;
