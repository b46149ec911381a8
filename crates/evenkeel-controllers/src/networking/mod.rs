//! Ranges of cluster IPs.

pub mod service_cidr;
