//! Flags of the embedded API server.

use std::path::PathBuf;

use evenkeel_apiserver::AuthorizationWebhookOptions;

/// Flags of the embedded API server, with kube-apiserver's names.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "API server")]
pub(crate) struct ServerArgs {
    /// CSV file of users with static tokens, one per line: token,name,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,

    /// AuthenticationConfiguration: issuers of JSON web tokens (OpenID Connect), and requests that need no
    /// credentials. Changes of the issuers apply without a restart.
    #[arg(long, value_name = "FILE")]
    pub(crate) authentication_config: Option<PathBuf>,

    /// Serve requests without credentials as system:anonymous. Default: true.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) anonymous_auth: Option<bool>,

    /// Authenticate with Secrets of type bootstrap.kubernetes.io/token in kube-system.
    #[arg(long)]
    pub(crate) enable_bootstrap_token_auth: bool,

    /// Accept client certificates of these CAs (PEM), in addition to those of the cluster's own CA.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,

    /// Private key (PEM) that signs tokens of service accounts. Default: the server's own key.
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_signing_key_file: Option<PathBuf>,

    /// Keys (PEM) that also verify tokens of service accounts: private keys, public keys or certificates.
    /// Repeatable.
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_key_file: Vec<PathBuf>,

    /// URL of the issuer in tokens of service accounts. If the flag is repeated, further issuers are accepted
    /// but not used for new tokens. Default: https://kubernetes.default.svc.
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_issuer: Vec<String>,

    /// Audiences of the API server, separated by commas. Default: the issuers.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) api_audiences: Vec<String>,

    /// EncryptionConfiguration: resources to encrypt in the data folder, and their keys (aescbc, aesgcm,
    /// secretbox) or KMS plugins.
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,

    /// Admission plug-ins to enable that are off by default, separated by commas:
    /// OwnerReferencesPermissionEnforcement.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) enable_admission_plugins: Vec<String>,

    /// Admission plug-ins to disable, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) disable_admission_plugins: Vec<String>,

    /// Authorizers in order, separated by commas: Node, RBAC, AlwaysAllow, AlwaysDeny. Default: Node,RBAC.
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    pub(crate) authorization_mode: Vec<String>,

    /// AuthorizationConfiguration: authorizers in order, with webhooks. It replaces --authorization-mode; changes of
    /// the file apply without a restart.
    #[arg(long, value_name = "FILE", conflicts_with = "authorization_mode")]
    pub(crate) authorization_config: Option<PathBuf>,

    /// Options of the mode Webhook, which only kube-apiserver's flags set.
    #[arg(skip)]
    pub(crate) authorization_webhook: Option<AuthorizationWebhookOptions>,

    /// CIDR from which cluster IPs are allocated (IPv4). Default: 10.96.0.0/16.
    #[arg(long, value_name = "CIDR")]
    pub(crate) service_cluster_ip_range: Option<String>,

    /// Maximum size of all objects in bytes, without their history. Beyond it, the server refuses writes that add to
    /// the size. Default: 8 GiB.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) quota_backend_bytes: Option<u64>,

    /// URL of the key set in the discovery document of the issuer of service account tokens.
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_jwks_uri: Option<String>,
}
