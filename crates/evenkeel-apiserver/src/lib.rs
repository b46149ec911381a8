//! The embedded API server: a tower service, a store, the resource table.
#![allow(dead_code, reason = "the parts land one by one")]

mod api;
mod auth;
mod decode;
mod discovery;
mod kinds;
mod managed;
mod openapi;
mod output;
mod patch;
mod resource;
mod schema;
mod selector;
mod status;
mod store;

pub use status::StatusError;
pub use store::OpenError;
