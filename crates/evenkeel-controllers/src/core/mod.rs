//! Controllers of the core: garbage, namespaces, service accounts, quotas, the cluster's CA, nodes.

pub mod garbagecollector;
pub mod legacytokencleaner;
pub mod namespace;
pub mod nodeipam;
pub mod nodelifecycle;
pub mod podgc;
pub mod resourcequota;
pub mod rootcacertpublisher;
pub mod serviceaccount;
pub mod serviceaccounttoken;
pub mod tainteviction;
pub mod ttl;
