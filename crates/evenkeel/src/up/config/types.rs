//! Types of the configuration file.

use super::{audit::Audit, devices::Devices, failures::Failure, users::User};
use evenkeel::schedulers::{SchedulerConfig, Schedulers};
use evenkeel_plane::NodeGroup;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

/// A cluster of `evenkeel up`. Paths are relative to the file.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Cluster {
    /// Version of this file's format.
    api_version: ApiVersion,
    /// Type of this file.
    kind: ClusterKind,
    /// Name of the cluster, a DNS label. Default: `default`, or a name made of the data folder's.
    #[serde(default, deserialize_with = "name")]
    pub(crate) name: Option<String>,
    /// Folder for the cluster's state. Without it, the state is in memory.
    #[serde(default)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Port of the API server. 0 chooses a free one. Default: 6443 if it is free, or else a free one.
    #[serde(default)]
    pub(crate) port: Option<u16>,
    /// Address on which the API server listens. Default: 127.0.0.1.
    #[serde(default)]
    pub(crate) bind_address: Option<IpAddr>,
    /// Port of the console in the browser, on 127.0.0.1, or `none`. 0 chooses a free one. Default: a free one.
    #[serde(default)]
    pub(crate) console: Option<ConsolePort>,
    /// Whether the console's pages can set the annotations of the simulation. Default: false.
    #[serde(default)]
    pub(crate) console_writes: bool,
    /// Whether to add the cluster to the user's kubeconfig. Default: true in the background, false in the foreground.
    #[serde(default)]
    pub(crate) write_kubeconfig: Option<bool>,
    /// File for the log, instead of one in the cluster's state folder.
    #[serde(default)]
    pub(crate) log_file: Option<PathBuf>,
    /// Time, such as `60s`, in which all nodes must be Ready at the start. Default: they are not waited for.
    #[serde(default, deserialize_with = "duration")]
    #[schemars(with = "Option<String>")]
    pub(crate) wait: Option<Duration>,
    /// Files and folders of manifests to apply once the cluster is ready.
    #[serde(default)]
    pub(crate) load: Vec<PathBuf>,
    /// Addresses for Services of type LoadBalancer, as in --load-balancer-pool. Default: 198.18.0.0/24.
    #[serde(default)]
    pub(crate) load_balancer_pool: Option<String>,
    /// Named pools of such addresses, in place of loadBalancerPool. The annotation evenkeel.dev/address-pool chooses one.
    #[serde(default)]
    pub(crate) load_balancer_pools: Vec<Pool>,
    /// Groups of simulated nodes. Default: three nodes in three zones.
    #[serde(default)]
    pub(crate) nodes: Option<Vec<Nodes>>,
    /// Controllers to run, as in kube-controller-manager's --controllers: names, names after `-`, and `*`. Default: `*`, which
    /// leaves out selinux-warning-controller; an empty list runs none.
    #[serde(default)]
    pub(crate) controllers: Option<Vec<String>>,
    /// Scheduler of the cluster, or several side by side.
    #[serde(default)]
    pub(crate) scheduler: Scheduler,
    /// Feature gates of controllers, scheduler and API server.
    #[serde(default)]
    pub(crate) feature_gates: BTreeMap<String, bool>,
    /// The API server.
    #[serde(default)]
    pub(crate) api_server: ApiServer,
    /// Users besides the administrator.
    #[serde(default)]
    pub(crate) users: Vec<User>,
    /// Failures that the cluster has by plan.
    #[serde(default)]
    pub(crate) failures: Vec<Failure>,
}

/// Named pool of addresses for Services of type LoadBalancer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Pool {
    /// Name of the pool.
    pub(crate) name: String,
    /// Addresses: CIDRs, ranges (first-last) or single addresses.
    pub(crate) addresses: Vec<String>,
}

/// Port of the console, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ConsolePort {
    /// Port on 127.0.0.1; 0 for a free one.
    Port(u16),
    /// No console is served.
    Word(NoConsole),
}

/// The word for no console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum NoConsole {
    /// The only word.
    #[serde(rename = "none")]
    None,
}

/// Version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum ApiVersion {
    /// The only version.
    #[serde(rename = "evenkeel.dev/v1alpha1")]
    V1Alpha1,
}

/// Type of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum ClusterKind {
    /// The only type.
    Cluster,
}

/// Group of simulated nodes that differ only in name, address and zone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Nodes {
    /// Name of the group: its nodes are NAME-0, NAME-1, ….
    #[serde(deserialize_with = "label")]
    pub(crate) name: String,
    /// Number of nodes. Default: 1.
    #[serde(default = "one")]
    pub(crate) count: u32,
    /// Zones, over which the nodes are spread in turn.
    #[serde(default)]
    pub(crate) zones: Vec<String>,
    /// Resources with quantities, such as `cpu: "64"` or `example.com/gpu: "8"`. Default: 8 CPUs, 32Gi of memory, 100Gi of
    /// ephemeral storage and 110 pods.
    #[serde(default)]
    pub(crate) capacity: BTreeMap<String, Quantity>,
    /// Labels of the nodes.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    #[serde(default)]
    pub(crate) taints: Vec<Taint>,
    /// Devices of each node, which ResourceSlices offer.
    #[serde(default)]
    pub(crate) devices: Vec<Devices>,
    /// Images that are on each node from the start, with their sizes, such as `nginx:1.27: 70Mi`. The scheduler prefers nodes
    /// that have a pod's images.
    #[serde(default)]
    pub(crate) images: BTreeMap<String, Quantity>,
}

/// Amount of a resource: a number, or a text such as `32Gi`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Quantity {
    /// Number without a unit.
    Number(serde_json::Number),
    /// Quantity with its unit.
    Text(String),
}

impl Quantity {
    /// Returns the quantity as text.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Taint {
    /// Key of the taint.
    pub(crate) key: String,
    /// Value of the taint. Default: empty.
    #[serde(default)]
    pub(crate) value: String,
    /// Effect on pods without a toleration.
    pub(crate) effect: Effect,
}

/// Effect of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum Effect {
    /// No pod is scheduled there.
    NoSchedule,
    /// Other nodes are preferred.
    PreferNoSchedule,
    /// Running pods are evicted, too.
    NoExecute,
}

/// Scheduler of the cluster, or several side by side.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scheduler {
    /// Whether to leave the scheduler out. Default: false.
    #[serde(default)]
    pub(crate) disabled: bool,
    /// A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) without extenders.
    #[serde(default)]
    pub(crate) config: Option<Map<String, Value>>,
    /// KubeSchedulerConfigurations, in place of config: each is that of a scheduler of its own, which schedules the pods whose
    /// schedulerName is that of one of its profiles. Default: one scheduler, with config.
    #[serde(default)]
    pub(crate) configs: Option<Vec<Map<String, Value>>>,
}

/// The API server: flags of kube-apiserver.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ApiServer {
    /// CSV file of users with static tokens, one per line: token,name,uid,"group1,group2".
    pub(crate) token_auth_file: Option<PathBuf>,
    /// File of an AuthenticationConfiguration.
    pub(crate) authentication_config: Option<PathBuf>,
    /// Whether to serve requests without credentials as system:anonymous. Default: true.
    pub(crate) anonymous_auth: Option<bool>,
    /// Whether to authenticate with Secrets of type bootstrap.kubernetes.io/token in kube-system. Default: false.
    pub(crate) enable_bootstrap_token_auth: bool,
    /// File of CAs (PEM) whose client certificates are accepted too.
    pub(crate) client_ca_file: Option<PathBuf>,
    /// File of the private key (PEM) that signs tokens of service accounts.
    pub(crate) service_account_signing_key_file: Option<PathBuf>,
    /// Files of keys (PEM) that also verify tokens of service accounts.
    pub(crate) service_account_key_files: Vec<PathBuf>,
    /// URLs of the issuers of service account tokens. The first one issues new tokens.
    pub(crate) service_account_issuers: Vec<String>,
    /// URL of the key set in the discovery document of the issuer.
    pub(crate) service_account_jwks_uri: Option<String>,
    /// Audiences of the API server. Default: the issuers.
    pub(crate) api_audiences: Vec<String>,
    /// File of an EncryptionConfiguration.
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// Admission plug-ins to enable that are off by default.
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Admission plug-ins to disable.
    pub(crate) disable_admission_plugins: Vec<String>,
    /// Authorizers in order: Node, RBAC, AlwaysAllow, AlwaysDeny. Default: Node and RBAC.
    pub(crate) authorization_mode: Vec<String>,
    /// File of an AuthorizationConfiguration, in place of authorizationMode.
    pub(crate) authorization_config: Option<PathBuf>,
    /// CIDR from which cluster IPs are allocated (IPv4). Default: 10.96.0.0/16.
    pub(crate) service_cluster_ip_range: Option<String>,
    /// Audit events. Default: none.
    pub(crate) audit: Option<Audit>,
}

/// What the file says of the components.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Components {
    pub(crate) nodes: Option<Vec<Nodes>>,
    pub(crate) controllers: Option<Vec<String>>,
    pub(crate) scheduler: Scheduler,
    pub(crate) feature_gates: BTreeMap<String, bool>,
    pub(crate) load_balancer_pools: Vec<Pool>,
    pub(crate) audit: Option<Audit>,
    pub(crate) users: Vec<User>,
    pub(crate) failures: Vec<Failure>,
}

impl Scheduler {
    /// Returns the schedulers with their configurations and these feature gates.
    pub(crate) fn schedulers(&self, feature_gates: &BTreeMap<String, bool>) -> Schedulers {
        let at = |place: String, config| SchedulerConfig { place, config };
        let configs = match (&self.configs, self.disabled) {
            (_, true) => Vec::new(),
            (None, _) => {
                vec![at("scheduler.config".to_owned(), self.config.clone().unwrap_or_default())]
            }
            (Some(configs), _) => {
                let places = (0..).map(|index: usize| format!("scheduler.configs[{index}]"));
                places.zip(configs).map(|(place, config)| at(place, config.clone())).collect()
            }
        };
        Schedulers { configs, feature_gates: feature_gates.clone() }
    }
}

impl Nodes {
    /// Returns the group for the simulated kubelets.
    pub(crate) fn group(&self) -> NodeGroup {
        let pairs = |map: &BTreeMap<String, String>| {
            map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        NodeGroup {
            prefix: format!("{}-", self.name),
            count: self.count,
            zones: self.zones.clone(),
            capacity: self
                .capacity
                .iter()
                .map(|(resource, amount)| (resource.clone(), amount.text()))
                .collect(),
            labels: pairs(&self.labels),
            taints: self
                .taints
                .iter()
                .map(|taint| {
                    (taint.key.clone(), taint.value.clone(), format!("{:?}", taint.effect))
                })
                .collect(),
        }
    }
}

fn one() -> u32 {
    1
}

fn label<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    crate::clusters::check_name(&text).map_err(D::Error::custom)
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    label(deserializer).map(Some)
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    crate::durations::parse(&text).map(Some).map_err(D::Error::custom)
}
