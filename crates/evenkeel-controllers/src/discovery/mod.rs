//! Endpoints, EndpointSlices, and slices that mirror Endpoints written by users.
//!
//! [`pod`] decides which pods are endpoints, and [`selected`] indexes pods by Service and Services by pod.

pub mod endpoints;
pub mod endpointslice;
pub mod endpointslicemirroring;

mod address;
mod canonical;
mod gauges;
mod order;
mod pod;
mod selected;
mod slice;
mod trigger;
