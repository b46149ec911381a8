//! `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`: read, completed with upstream's defaults, checked by its
//! rules, shown as it shows it.

mod args;
mod check;
mod defaults;
mod plugins;
mod read;
mod schema;
#[cfg(test)]
mod tests;
mod write;

pub use args::Shape;
pub(crate) use args::{
    Balanced, Dynamic, Fit, InterPod, NodeAffinityWire, Preemption, Resources, Spread, Volumes,
    Wire, typed,
};
pub use check::Invalid;
pub(crate) use check::Several;
pub use read::ReadError;

use evenkeel_component::features::FeatureGates;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// The configuration's group and version.
pub(crate) const GROUP: &str = "kubescheduler.config.k8s.io/v1";

/// Upstream's `KubeSchedulerConfiguration`. What is not said is `None` until [`Configuration::complete`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    kind: String,
    api_version: String,
    /// How many goroutines upstream looks for nodes with; here attempts take one thread.
    pub parallelism: Option<i32>,
    /// When the program may lead.
    pub leader_election: LeaderElection,
    /// How the program reaches its cluster.
    pub client_connection: ClientConnection,
    /// Whether profiles are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_profiling: Option<bool>,
    /// Whether contention is profiled as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_contention_profiling: Option<bool>,
    /// Of all nodes, the share that is enough to choose from; 0 lets it depend on their number.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// A pod's first back-off, in seconds.
    pub pod_initial_backoff_seconds: Option<i64>,
    /// The longest back-off, in seconds.
    pub pod_max_backoff_seconds: Option<i64>,
    /// One for each scheduler's name.
    pub profiles: Vec<ProfileConfig>,
    /// Others that are asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extenders: Vec<ExtenderConfig>,
    /// Whether caches are filled by the leader alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub delay_cache_until_active: bool,
}

/// Settings of leader election: upstream's `LeaderElectionConfiguration`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderElection {
    /// Whether to lead before working.
    pub leader_elect: Option<bool>,
    /// How long others wait for a silent leader.
    pub lease_duration: Span,
    /// How long the leader tries to renew.
    pub renew_deadline: Span,
    /// Pause between tries.
    pub retry_period: Span,
    /// Kind of the lock; only `leases` is supported.
    pub resource_lock: String,
    /// The Lease's name.
    pub resource_name: String,
    /// The Lease's namespace.
    pub resource_namespace: String,
}

/// Settings of the API client: upstream's `ClientConnectionConfiguration`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnection {
    /// Path of a kubeconfig; a pod's own credentials without one.
    pub kubeconfig: String,
    /// What answers may be written in.
    pub accept_content_types: String,
    /// What requests are written in.
    pub content_type: String,
    /// Requests a second; unlimited when negative.
    #[serde(serialize_with = "write::float")]
    pub qps: f32,
    /// Requests at once.
    pub burst: i32,
}

/// One scheduler of the program: upstream's `KubeSchedulerProfile`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileConfig {
    /// Pods with this `schedulerName` are its own.
    pub scheduler_name: Option<String>,
    /// In place of the configuration's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Which plugins take part, by extension point.
    pub plugins: Option<Plugins>,
    /// The plugins' arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugin_config: Vec<PluginConfig>,
}

/// Which plugins take part, by extension point as the configuration names it (`multiPoint` among them).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugins(pub BTreeMap<String, PluginSet>);

impl Plugins {
    /// Those of one extension point.
    pub(crate) fn of(&self, point: &str) -> &PluginSet {
        static NONE: PluginSet = PluginSet { enabled: Vec::new(), disabled: Vec::new() };
        self.0.get(point).unwrap_or(&NONE)
    }
}

/// Enabled and disabled plugins of one extension point: upstream's `PluginSet`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginSet {
    /// In this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<PluginRef>,
    /// Of the default ones; `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<PluginRef>,
}

/// A plugin that takes part, or does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginRef {
    /// Name in the configuration.
    pub name: String,
    /// What its score is multiplied by.
    pub weight: i32,
}

/// Arguments of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginConfig {
    /// The plugin's name.
    pub name: String,
    /// Complete, with kind and version, where the plugin comes with Evenkeel; else as they were given.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub args: Value,
}

/// Webhook that takes part in scheduling: upstream's `Extender`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderConfig {
    /// What its verbs are appended to.
    pub url_prefix: String,
    /// Where nodes are filtered; empty for not at all. So for the other verbs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_verb: String,
    /// Where victims are looked over.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preempt_verb: String,
    /// Where nodes are scored.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prioritize_verb: String,
    /// What its scores are multiplied by.
    #[serde(skip_serializing_if = "is_zero")]
    pub weight: i64,
    /// Where pods are bound.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bind_verb: String,
    /// Whether it is reached by HTTPS.
    #[serde(rename = "enableHTTPS", skip_serializing_if = "std::ops::Not::not")]
    pub enable_https: bool,
    /// Whom to believe, and as whom to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<ExtenderTls>,
    /// How long a call may take; 5 s where it is 0.
    #[serde(rename = "httpTimeout")]
    pub http_timeout: Span,
    /// Whether it knows nodes itself, so that names are enough.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_cache_capable: bool,
    /// Only pods that ask for one of these are sent to it; all where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_resources: Vec<ManagedResource>,
    /// Whether scheduling goes on where it fails.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignorable: bool,
}

/// Upstream's `ExtenderTLSConfig`. Data (base64) goes before files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderTls {
    /// Whether anybody is believed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// The name that its certificate must have, where it is not the host's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    /// The certificate to come with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cert_file: String,
    /// Path of the client certificate's private key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_file: String,
    /// Who may sign its certificate.
    #[serde(rename = "caFile", skip_serializing_if = "String::is_empty")]
    pub ca_file: String,
    /// Client certificate in PEM, in place of `cert_file`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cert_data: String,
    /// Private key in PEM, in place of `key_file`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_data: String,
    /// CA certificates in PEM, in place of `ca_file`.
    #[serde(rename = "caData", skip_serializing_if = "String::is_empty")]
    pub ca_data: String,
}

/// A resource that an extender sees to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedResource {
    /// Name in the configuration.
    pub name: String,
    /// Whether the scheduler itself does not look at it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignored_by_scheduler: bool,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A duration as Go writes it; it may be negative until it is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub i64);

impl Span {
    /// So many seconds.
    pub(crate) const fn seconds(seconds: i64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// As a duration; a negative one is none.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or_default())
    }
}

impl TryFrom<String> for Span {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        evenkeel_api::duration::nanoseconds(&text).map(Self)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        evenkeel_api::duration::write(span.0)
    }
}

impl Configuration {
    /// Reads a configuration's text and fills in what it does not say.
    ///
    /// # Errors
    /// When it has unknown fields or values of other types.
    pub fn parse(text: &str, gates: &FeatureGates) -> Result<Self, ReadError> {
        let mut read = read::read(text)?;
        read.complete(gates);
        Ok(read)
    }

    /// Returns upstream's default configuration with these feature gates.
    pub fn standard(gates: &FeatureGates) -> Self {
        let mut standard = Self::default();
        standard.complete(gates);
        standard
    }
}
