//! Controllers of roles.

pub mod clusterroleaggregation;
