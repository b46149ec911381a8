//! Which addresses Services have: Endpoints, EndpointSlices, and slices that mirror Endpoints that somebody else wrote.
//!
//! What the first two decide alike about a pod is in [`pod`], which pods and Services belong together in [`selected`].

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
