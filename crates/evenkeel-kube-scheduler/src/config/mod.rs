//! Reads `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`, sets upstream's defaults, validates it by
//! upstream's rules, and writes it as upstream does.

mod args;
mod check;
mod defaults;
mod plugins;
mod read;
mod schema;
#[cfg(test)]
mod tests;
mod write;

pub use args::ShapePoint;
pub(crate) use args::{
    DefaultPreemptionArgs, DynamicResourcesArgs, InterPodAffinityArgs, NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs, PluginArgs, PodTopologySpreadArgs,
    ResourceSpec, VolumeBindingArgs, typed,
};
pub(crate) use check::Aggregate;
pub use check::FieldError;
pub use read::ReadError;

use evenkeel_component::features::FeatureGates;
pub use evenkeel_scheduler::extender::{
    ExtenderConfig, ExtenderManagedResource, ExtenderTlsConfig, GoDuration,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Group and version of the configuration.
pub(crate) const GROUP: &str = "kubescheduler.config.k8s.io/v1";

/// Configuration of the program. Fields that are unset stay `None` until the defaults are set.
///
/// Upstream: `KubeSchedulerConfiguration`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeSchedulerConfiguration {
    kind: String,
    api_version: String,
    /// Maximum number of victims that one preemption deletes concurrently. Default: 16. Upstream also uses this number
    /// of goroutines in an attempt.
    pub parallelism: Option<i32>,
    /// Leader election among the program's replicas.
    pub leader_election: LeaderElectionConfiguration,
    /// Connection to the API server.
    pub client_connection: ClientConnectionConfiguration,
    /// Whether the program serves `/debug/pprof`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_profiling: Option<bool>,
    /// Whether the program profiles lock contention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_contention_profiling: Option<bool>,
    /// Percentage of the nodes that must be feasible for an attempt to stop its search. Default: 0, a percentage that
    /// depends on the size of the cluster.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Initial backoff of an unschedulable pod in seconds. Default: 1.
    pub pod_initial_backoff_seconds: Option<i64>,
    /// Maximum backoff in seconds. Default: 10.
    pub pod_max_backoff_seconds: Option<i64>,
    /// One profile for each scheduler name.
    pub profiles: Vec<KubeSchedulerProfile>,
    /// HTTP extenders, in the order of their calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extenders: Vec<ExtenderConfig>,
    /// Whether informers start only when the program becomes the leader. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub delay_cache_until_active: bool,
}

/// Leader election settings (upstream: `LeaderElectionConfiguration`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderElectionConfiguration {
    /// Whether the program works only while it is the leader. Default: true.
    pub leader_elect: Option<bool>,
    /// Time since the last renewal after which other candidates may acquire the lease. Default: 15 s.
    pub lease_duration: GoDuration,
    /// Time after which a leader that cannot renew its lease gives up. Default: 10 s.
    pub renew_deadline: GoDuration,
    /// Interval between attempts to acquire or renew the lease. Default: 2 s.
    pub retry_period: GoDuration,
    /// Kind of the lock object: `leases`.
    pub resource_lock: String,
    /// Name of the Lease.
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
}

/// Connection settings (upstream: `ClientConnectionConfiguration`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnectionConfiguration {
    /// Path of a kubeconfig. If empty, the program uses its pod's credentials.
    pub kubeconfig: String,
    /// Value of the `Accept` header.
    pub accept_content_types: String,
    /// Content type of request bodies. Default: protobuf.
    pub content_type: String,
    /// Maximum rate in requests per second. Negative means unlimited. Default: 50.
    #[serde(serialize_with = "write::serialize_float")]
    pub qps: f32,
    /// Number of requests that may exceed `qps` in a burst. Default: 100.
    pub burst: i32,
}

/// A profile (upstream: `KubeSchedulerProfile`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeSchedulerProfile {
    /// `spec.schedulerName` of the pods that the profile schedules.
    pub scheduler_name: Option<String>,
    /// Percentage that overrides the one of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Enabled and disabled plugins by extension point.
    pub plugins: Option<Plugins>,
    /// Arguments of plugins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugin_config: Vec<PluginConfig>,
}

/// Enabled and disabled plugins by extension point. The keys are the configuration's names, including `multiPoint`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugins(pub BTreeMap<String, PluginSet>);

impl Plugins {
    /// Returns the plugins of an extension point.
    pub(crate) fn at_point(&self, point: &str) -> &PluginSet {
        static EMPTY: PluginSet = PluginSet { enabled: Vec::new(), disabled: Vec::new() };
        self.0.get(point).unwrap_or(&EMPTY)
    }
}

/// Plugins of an extension point (upstream: `PluginSet`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginSet {
    /// Enabled plugins in the order of their calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<PluginRef>,
    /// Disabled default plugins. `*` disables all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<PluginRef>,
}

/// A plugin that is enabled or disabled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginRef {
    /// Name of the plugin.
    pub name: String,
    /// Weight of the plugin's scores. 0 means 1.
    pub weight: i32,
}

/// Arguments of a plugin (upstream: `PluginConfig`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginConfig {
    /// Name of the plugin.
    pub name: String,
    /// Arguments. Those of in-tree plugins have all defaults, kind and version; others stay as configured.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub args: Value,
}

impl KubeSchedulerConfiguration {
    /// Parses a configuration and sets its defaults.
    ///
    /// # Errors
    /// Fails if it has unknown fields or values of a wrong type.
    pub fn parse(text: &str, gates: &FeatureGates) -> Result<Self, ReadError> {
        let mut configuration = read::read(text)?;
        configuration.set_defaults(gates);
        Ok(configuration)
    }

    /// Returns the default configuration.
    pub fn defaults(gates: &FeatureGates) -> Self {
        let mut configuration = Self::default();
        configuration.set_defaults(gates);
        configuration
    }
}
