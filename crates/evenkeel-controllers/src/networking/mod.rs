//! Controllers of the API group `networking.k8s.io`.

pub mod servicecidr;
