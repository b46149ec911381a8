//! Controllers of roles.

pub mod cluster_role_aggregation;
