//! Options of `evenkeel up`.

use std::{net::IpAddr, path::PathBuf};

/// Flags of `evenkeel up`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Keep the cluster's state in this folder; without it, the state is lost when the program stops.
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,

    /// Port of the API server; 0 chooses a free one.
    #[arg(long, default_value_t = 6443)]
    pub(super) port: u16,

    /// Address the API server listens on.
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

    /// Addresses for Services of type LoadBalancer: CIDRs, ranges (first-last) or single addresses, separated by commas;
    /// `none` assigns no addresses. Default: 198.18.0.0/24 for the embedded API server, none for another one.
    #[arg(long, value_name = "ADDRESSES")]
    pub(super) load_balancer_pool: Option<String>,

    /// Add the cluster to your kubeconfig ($KUBECONFIG, else ~/.kube/config) and make it the current one.
    #[arg(long)]
    pub(super) write_kubeconfig: bool,

    /// CSV file of users with static tokens, one per line: token,name,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub(super) token_auth_file: Option<PathBuf>,

    #[command(flatten)]
    pub(super) server: ServerArgs,

    /// More log messages: once for actions, twice for every request.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

/// Flags of the embedded API server, with kube-apiserver's names.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "API server")]
pub(crate) struct ServerArgs {
    /// AuthenticationConfiguration: issuers of JSON web tokens (OpenID Connect), and which requests need no credentials.
    #[arg(long, value_name = "FILE")]
    pub(super) authentication_config: Option<PathBuf>,

    /// Serve requests without credentials as those of system:anonymous. Default: true.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) anonymous_auth: Option<bool>,

    /// Authenticate with Secrets of type bootstrap.kubernetes.io/token in kube-system.
    #[arg(long)]
    pub(super) enable_bootstrap_token_auth: bool,

    /// Accept client certificates of these authorities (PEM), as well as those of the cluster's own.
    #[arg(long, value_name = "FILE")]
    pub(super) client_ca_file: Option<PathBuf>,

    /// Private key (PEM) that signs tokens of service accounts. Default: a key of the server's own.
    #[arg(long, value_name = "FILE")]
    pub(super) service_account_signing_key_file: Option<PathBuf>,

    /// Keys (PEM) that also verify tokens of service accounts: private keys, public keys or certificates; repeatable.
    #[arg(long, value_name = "FILE")]
    pub(super) service_account_key_file: Vec<PathBuf>,

    /// URL of the issuer in tokens of service accounts. Repeated ones are accepted, and not used for new tokens. Default:
    /// https://kubernetes.default.svc.
    #[arg(long, value_name = "URL")]
    pub(super) service_account_issuer: Vec<String>,

    /// Audiences of the API server, with commas between. Default: the issuers.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) api_audiences: Vec<String>,

    /// EncryptionConfiguration: which resources are encrypted in the data folder, and by which keys (aescbc, aesgcm, secretbox).
    #[arg(long, value_name = "FILE")]
    pub(super) encryption_provider_config: Option<PathBuf>,

    /// Admission plug-ins that are off by default, with commas between: OwnerReferencesPermissionEnforcement.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) enable_admission_plugins: Vec<String>,
}

/// Default pool of the embedded API server: addresses for benchmarks (RFC 2544), which no network routes.
const DEFAULT_POOL: &str = "198.18.0.0/24";

impl Args {
    /// Returns the pool of load balancer addresses; `None` if Services get none.
    pub(super) fn pool(&self) -> Option<&str> {
        let default = (!self.is_remote()).then_some(DEFAULT_POOL);
        self.load_balancer_pool.as_deref().or(default).filter(|pool| *pool != "none")
    }

    /// Whether an API server other than the embedded one is used.
    pub(super) fn is_remote(&self) -> bool {
        self.apiserver.is_some() || self.kubeconfig.is_some()
    }
}
