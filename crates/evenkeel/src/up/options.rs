//! Options of `evenkeel up`.

use crate::server::ServerArgs;
use std::{net::IpAddr, path::PathBuf};

/// Flags of `evenkeel up`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Folder for the cluster's state. Without it, the state is lost when the program stops.
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,

    /// Port of the API server. 0 chooses a free one.
    #[arg(long, default_value_t = 6443)]
    pub(super) port: u16,

    /// Address on which the API server listens.
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    pub(super) bind_address: IpAddr,

    /// Number of simulated nodes.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(super) nodes: u32,

    /// Do not schedule pods.
    #[arg(long)]
    pub(super) no_scheduler: bool,

    /// Do not run controllers.
    #[arg(long)]
    pub(super) no_controllers: bool,

    /// Use the API server at this address instead of an embedded one.
    #[arg(long, value_name = "URL", conflicts_with_all = ["data_dir", "port", "bind_address"])]
    pub(super) apiserver: Option<String>,

    /// Use the cluster of this kubeconfig instead of an embedded API server.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "port", "bind_address"])]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Addresses for Services of type LoadBalancer: CIDRs, ranges (first-last) or single addresses, separated by
    /// commas; `none` assigns no addresses. Default: 198.18.0.0/24 for the embedded API server, none for another one.
    #[arg(long, value_name = "ADDRESSES")]
    pub(super) load_balancer_pool: Option<String>,

    /// Add the cluster to your kubeconfig ($KUBECONFIG, else ~/.kube/config) and make it the current one.
    #[arg(long)]
    pub(super) write_kubeconfig: bool,

    #[command(flatten)]
    pub(super) server: ServerArgs,

    /// Log more: once for actions, twice for every request.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

/// Default pool of the embedded API server: addresses that are reserved for benchmarks (RFC 2544) and not routed.
const DEFAULT_POOL: &str = "198.18.0.0/24";

impl Args {
    /// Returns the pool of load balancer addresses, or `None` if Services get none.
    pub(super) fn pool(&self) -> Option<&str> {
        let default = (!self.is_remote()).then_some(DEFAULT_POOL);
        self.load_balancer_pool.as_deref().or(default).filter(|pool| *pool != "none")
    }

    /// Returns whether an API server other than the embedded one is used.
    pub(super) fn is_remote(&self) -> bool {
        self.apiserver.is_some() || self.kubeconfig.is_some()
    }
}
