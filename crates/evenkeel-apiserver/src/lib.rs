//! Embedded API server: a tower service, a store and a resource table.

mod admission;
mod aggregation;
mod announcement;
mod apf_controller;
mod api;
mod audit;
mod auth;
mod backend;
mod bootstrap;
mod budget;
mod clock;
mod components;
mod computed;
mod custom;
mod decode;
mod discovery;
mod draws;
mod encryption;
mod etcd_layout;
mod event_ttl;
mod files;
mod flow;
#[doc(hidden)]
pub mod fuzz;
mod https;
mod kubelet;
mod loopback;
mod metrics;
mod openapi;
mod output;
mod pipeline;
mod proxy;
mod registry;
mod request;
mod resource;
mod response;
mod selector;
mod serve;
mod service_network;
mod store;
mod strategy;
mod streaming;
mod tasks;
mod tracking;
mod verbs;
mod webhook;

pub use admission::admission_plugins;
pub use audit::{AuditLogOptions, AuditMode, AuditOptions, AuditWebhookOptions};
pub use auth::{AuthorizationWebhookOptions, RequestHeaderOptions, User};
pub use bootstrap::{BootstrapGrant, BootstrapRule, bootstrap_grants};
pub use clock::Clock;
pub use computed::{ComputedApi, ComputedResource};
pub use evenkeel_apimachinery::status::StatusError;
pub use files::write as write_private_file;
pub use kubelet::{Kubelet, LogLine, Output, PodConnection, PodRef, StreamError, Streams};
pub use resource::Source;
pub use response::{Body, BodyError, WriteTimeout};
pub use serve::{
    AggregationOptions, AuthenticationOptions, BuildError, Builder, ConnectionLimits,
    DEFAULT_QUOTA_BACKEND_BYTES, ServeError, Server, Service, UncheckedError,
};
pub use store::{EtcdOptions, OpenError, STAND_IN_MESSAGE};

/// Snapshots of a data folder that no server uses. [`Server::snapshot`] takes a snapshot of a running server.
pub mod snapshot {
    pub use crate::store::{SnapshotError, Summary, discard, restore, save, verify};
}
