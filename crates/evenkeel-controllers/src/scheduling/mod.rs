//! Controllers of the API group `scheduling.k8s.io`.

#[cfg(k8s_v1_37)]
pub mod podgroupprotection;
