//! Ranges of cluster IPs.

pub mod servicecidr;
