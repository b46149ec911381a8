//! Controllers of the core: garbage, namespaces, service accounts.

pub mod garbage_collector;
