//! Cloud part of the control plane.
//!
//! A [`CloudProvider`] is the interface to a cloud: load balancers of Services, metadata of machines, and
//! routes to pods. Four controllers use it, as in upstream's `k8s.io/cloud-provider`: [`service`], [`route`],
//! [`node`] and [`node_lifecycle`]. Each has a `plan` that decides, and a thin shell that calls the provider
//! and writes. [`ip_pool`] is a provider for machines without a cloud.

pub mod context;
pub mod ip_pool;
pub mod node;
pub mod node_lifecycle;
pub mod program;
pub mod provider;
pub mod route;
pub mod service;

mod change;
#[cfg(test)]
mod fixtures;

pub use context::{CloudContext, Descriptor, Options, StartError, descriptors};
pub use provider::{
    CloudError, CloudProvider, InstanceMetadata, Instances, LoadBalancer, ProviderContext, Route,
    Routes,
};
