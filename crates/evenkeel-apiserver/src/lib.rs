//! The embedded API server: a tower service, a store, the resource table.

mod api;
mod auth;
mod bootstrap;
mod clock;
mod components;
mod computed;
mod custom;
mod decode;
mod discovery;
mod files;
mod flow;
mod kinds;
mod metrics;
mod openapi;
mod output;
mod pipeline;
mod policy;
mod resource;
mod selector;
mod serve;
mod store;
mod tasks;
mod tracking;
mod verbs;
mod webhook;

pub use auth::User;
pub use clock::Clock;
pub use computed::{ComputedApi, ComputedResource, Source};
pub use evenkeel_apimachinery::status::StatusError;
pub use serve::{Body, BuildError, Builder, ServeError, Server, Service, UncheckedError};
pub use store::OpenError;
