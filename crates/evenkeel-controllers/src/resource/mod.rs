//! Controllers of the API group `resource.k8s.io` (dynamic resource allocation).

pub mod devicetainteviction;
mod podclaims;
pub mod resourceclaim;
pub mod resourcepoolstatusrequest;
mod rules;
