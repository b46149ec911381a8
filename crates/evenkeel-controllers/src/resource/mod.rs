//! Controllers of the API group `resource.k8s.io` (dynamic resource allocation).

pub mod resourceclaim;
