//! Controllers of the core group: garbage collection, namespaces, service accounts, quotas, root CA, nodes, pods.

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
