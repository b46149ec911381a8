//! Options of the store in etcd.

use std::time::Duration;

/// Options of a store in etcd, from kube-apiserver's flags.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// URLs of etcd's servers (`--etcd-servers`).
    pub servers: Vec<String>,
    /// Prefix of all keys (`--etcd-prefix`).
    pub prefix: String,
    /// PEM of the authorities of the servers' certificates (`--etcd-cafile`); `None` trusts none.
    pub ca: Option<String>,
    /// PEM of the client's certificate and of its key (`--etcd-certfile`, `--etcd-keyfile`).
    pub client: Option<[String; 2]>,
    /// Interval of compactions (`--etcd-compaction-interval`); zero for none.
    pub compaction_interval: Duration,
}

impl EtcdOptions {
    /// Default of `--etcd-prefix`.
    pub const DEFAULT_PREFIX: &'static str = "/registry";
    /// Default of `--etcd-compaction-interval`.
    pub const DEFAULT_COMPACTION_INTERVAL: Duration = Duration::from_secs(300);

    /// Returns the options of these servers, with defaults.
    #[must_use]
    pub fn new(servers: impl IntoIterator<Item = String>) -> Self {
        Self {
            servers: servers.into_iter().collect(),
            prefix: Self::DEFAULT_PREFIX.to_owned(),
            ca: None,
            client: None,
            compaction_interval: Self::DEFAULT_COMPACTION_INTERVAL,
        }
    }
}
