//! Reads `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`, sets upstream's defaults, validates it by
//! upstream's rules and writes it as upstream does.

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

/// The configuration's group and version.
pub(crate) const GROUP: &str = "kubescheduler.config.k8s.io/v1";

/// The configuration of the program. Unset fields are `None` until the defaults are set.
///
/// Upstream: `KubeSchedulerConfiguration`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeSchedulerConfiguration {
    kind: String,
    api_version: String,
    /// Number of goroutines of a scheduling attempt upstream; validated, but without effect: an attempt uses one thread.
    pub parallelism: Option<i32>,
    /// Leader election of the program's replicas.
    pub leader_election: LeaderElectionConfiguration,
    /// Connection to the API server.
    pub client_connection: ClientConnectionConfiguration,
    /// Whether `/debug/pprof` is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_profiling: Option<bool>,
    /// Whether lock contention is profiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_contention_profiling: Option<bool>,
    /// Percentage of feasible nodes after which the search stops; 0 adapts it to the cluster's size.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Initial backoff of an unschedulable pod, in seconds.
    pub pod_initial_backoff_seconds: Option<i64>,
    /// Maximum backoff, in seconds.
    pub pod_max_backoff_seconds: Option<i64>,
    /// One profile for each scheduler name.
    pub profiles: Vec<KubeSchedulerProfile>,
    /// HTTP extenders in the order of their calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extenders: Vec<ExtenderConfig>,
    /// Whether informers start only once the program leads; false by default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub delay_cache_until_active: bool,
}

/// Leader election settings (upstream: `LeaderElectionConfiguration`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderElectionConfiguration {
    /// Whether the program works only while it leads.
    pub leader_elect: Option<bool>,
    /// Time after the last renewal from which other candidates may take the lease.
    pub lease_duration: GoDuration,
    /// Time after which a leader that cannot renew gives up.
    pub renew_deadline: GoDuration,
    /// Pause between attempts to acquire or renew.
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
    /// Path of a kubeconfig; a pod's own credentials without one.
    pub kubeconfig: String,
    /// Value of the `Accept` header.
    pub accept_content_types: String,
    /// Content type of request bodies.
    pub content_type: String,
    /// Requests per second; unlimited when negative.
    #[serde(serialize_with = "write::float")]
    pub qps: f32,
    /// Requests that may exceed `qps` at once.
    pub burst: i32,
}

/// A profile (upstream: `KubeSchedulerProfile`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeSchedulerProfile {
    /// Value of `schedulerName` in the pods that the profile schedules.
    pub scheduler_name: Option<String>,
    /// Overrides the configuration's percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Enabled and disabled plugins by extension point.
    pub plugins: Option<Plugins>,
    /// Arguments of plugins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugin_config: Vec<PluginConfig>,
}

/// Enabled and disabled plugins by the configuration's name of the extension point, with `multiPoint` among them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugins(pub BTreeMap<String, PluginSet>);

impl Plugins {
    /// Returns the plugins of an extension point.
    pub(crate) fn of(&self, point: &str) -> &PluginSet {
        static NONE: PluginSet = PluginSet { enabled: Vec::new(), disabled: Vec::new() };
        self.0.get(point).unwrap_or(&NONE)
    }
}

/// Plugins of an extension point (upstream: `PluginSet`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginSet {
    /// Enabled plugins in the order of their calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<PluginRef>,
    /// Disabled default plugins; `*` stands for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<PluginRef>,
}

/// A plugin that is enabled or disabled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginRef {
    /// Name of the plugin.
    pub name: String,
    /// Weight of its scores; 0 stands for 1.
    pub weight: i32,
}

/// Arguments of a plugin (upstream: `PluginConfig`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginConfig {
    /// Name of the plugin.
    pub name: String,
    /// For in-tree plugins, complete with defaults, kind and version; for others as configured.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub args: Value,
}

impl KubeSchedulerConfiguration {
    /// Parses a configuration and sets its defaults.
    ///
    /// # Errors
    /// If it has unknown fields or values of wrong types.
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
