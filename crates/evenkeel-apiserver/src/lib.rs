//! The embedded API server: a tower service, a store, the resource table.

mod api;
mod auth;
mod bootstrap;
mod cel;
mod components;
mod computed;
mod custom;
mod decode;
mod discovery;
mod files;
mod flow;
mod headers;
mod kinds;
mod managed;
mod metrics;
mod openapi;
mod output;
mod patch;
mod pipeline;
mod policy;
mod resource;
mod schema;
mod selector;
mod serve;
mod status;
mod store;
mod tasks;
mod tracking;
mod verbs;
mod webhook;

pub use api::Clock;
pub use auth::User;
pub use computed::{ComputedApi, ComputedResource, Source};
pub use serve::{Body, BuildError, Builder, ServeError, Server, Service, UncheckedError};
pub use status::StatusError;
pub use store::OpenError;
