//! Controllers of devices and the claims to them (dynamic resource allocation).

pub mod resourceclaim;
