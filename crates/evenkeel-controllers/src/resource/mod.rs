//! Controllers of the API group `resource.k8s.io` (dynamic resource allocation).

#[cfg(k8s_v1_37)]
pub mod devicetainteviction;
mod podclaims;
pub mod resourceclaim;
#[cfg(k8s_v1_37)]
pub mod resourcepoolstatusrequest;
#[cfg(k8s_v1_37)]
mod rules;
