//! Flags of the embedded API server.

use std::path::PathBuf;

/// Flags of the embedded API server, with kube-apiserver's names.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "API server")]
pub(crate) struct ServerArgs {
    /// CSV file of users with static tokens, one per line: token,name,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,

    /// AuthenticationConfiguration: issuers of JSON web tokens (OpenID Connect), and which requests need no credentials.
    #[arg(long, value_name = "FILE")]
    pub(crate) authentication_config: Option<PathBuf>,

    /// Serve requests without credentials as those of system:anonymous. Default: true.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) anonymous_auth: Option<bool>,

    /// Authenticate with Secrets of type bootstrap.kubernetes.io/token in kube-system.
    #[arg(long)]
    pub(crate) enable_bootstrap_token_auth: bool,

    /// Accept client certificates of these authorities (PEM), as well as those of the cluster's own.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,

    /// Private key (PEM) that signs tokens of service accounts. Default: a key of the server's own.
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_signing_key_file: Option<PathBuf>,

    /// Keys (PEM) that also verify tokens of service accounts: private keys, public keys or certificates; repeatable.
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_key_file: Vec<PathBuf>,

    /// URL of the issuer in tokens of service accounts. Repeated ones are accepted, and not used for new tokens. Default:
    /// https://kubernetes.default.svc.
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_issuer: Vec<String>,

    /// Audiences of the API server, with commas between. Default: the issuers.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) api_audiences: Vec<String>,

    /// EncryptionConfiguration: which resources are encrypted in the data folder, and by which keys (aescbc, aesgcm, secretbox).
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,

    /// Admission plug-ins that are off by default, with commas between: OwnerReferencesPermissionEnforcement.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) enable_admission_plugins: Vec<String>,

    /// Admission plug-ins to disable, with commas between.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) disable_admission_plugins: Vec<String>,

    /// Authorizers, in order, with commas between: Node, RBAC, AlwaysAllow, AlwaysDeny. Default: Node,RBAC.
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    pub(crate) authorization_mode: Vec<String>,

    /// CIDR that cluster IPs are allocated from (IPv4). Default: 10.96.0.0/16.
    #[arg(long, value_name = "CIDR")]
    pub(crate) service_cluster_ip_range: Option<String>,

    /// URL of the key set in the discovery document of the issuer of service account tokens.
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_jwks_uri: Option<String>,
}
