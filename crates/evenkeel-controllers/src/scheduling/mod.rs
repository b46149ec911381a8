//! Controllers of the API group `scheduling.k8s.io`.

pub mod podgroupprotection;
