//! Controllers of the core: garbage, namespaces, service accounts, quotas, the cluster's CA, nodes.

pub mod garbage_collector;
pub mod legacy_token_cleaner;
pub mod namespace;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod pod_gc;
pub mod resource_quota;
pub mod root_ca;
pub mod service_account;
pub mod service_account_token;
pub mod taint_eviction;
pub mod ttl;
